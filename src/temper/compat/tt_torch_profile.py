"""tt-torch's profiler command and class over Temper's profiler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from temper.compat import children
from temper.errors import UsageError
from temper.frontdoor.tt_profile import copy_trace, main


def tt_profile() -> None:
    """The command ``tt_profile``: what it runs was written for tt-torch, so it gets stand-ins."""

    main(environment=children.environment("wall"))


def run_profiled(command: str, output_filename: str, port: int) -> None:
    """A command under the profiler, with stand-ins; the report lies in ``results/perf``."""
    from temper.frontdoor.profile_command import profile_command

    report = Profiler.DEFAULT_OUTPUT_PATH / output_filename
    code = profile_command(
        command, report.with_suffix(""), port=None if port == Profiler.port else port, csv=report,
        environment=children.environment("wall"),
    )  # fmt: skip
    copy_trace(report.with_suffix(""))
    if code:
        raise UsageError(f"the profiled command ended with exit code {code}")


class Profiler:
    """Profiles what runs between ``setup_tracy_server`` and ``close_capture_tool_process``.

    Processes started in between find the port in their environment. The steps by which tt-torch
    turns Tracy's files into the report are one here: the report is written when capture closes.
    """

    DEFAULT_OUTPUT_FILENAME = "device_ops_perf_trace.csv"
    DEFAULT_OUTPUT_PATH = Path("results") / "perf"
    port = 8086

    def __init__(self, output_filename: str = DEFAULT_OUTPUT_FILENAME, port: int = 8086) -> None:
        self.port = port
        self.profile_ops_perf_report = str(self.DEFAULT_OUTPUT_PATH / output_filename)
        self._server: Any = None

    def assert_perf_build(self) -> None:
        """Every build of Temper profiles."""

    def setup_tracy_server(self) -> str:
        """Starts capturing on a loopback port; returns it."""
        from temper.record.server import CaptureServer

        if self._server is not None:
            raise UsageError("the capture server is running already")
        self._server = CaptureServer(None if self.port == Profiler.port else self.port)
        self.port = self._server.port
        os.environ.update(self._server.environment)
        return str(self.port)

    def close_capture_tool_process(self) -> None:
        """Stops capturing and writes the report."""
        from temper.report.writers import write_run
        from temper.run.logs import run_from_logs

        if self._server is None:
            return
        server, self._server = self._server, None
        for variable in server.environment:
            os.environ.pop(variable, None)
        server.wait_until_idle(3.0)
        run = run_from_logs(server.stop(), source="tt_torch.Profiler")
        report = Path(self.profile_ops_perf_report)
        write_run(run, report.with_suffix(""), csv=report)

    def process_csvexport(self) -> None:
        """Done when capture closes."""

    def copy_files_to_tt_metal(self) -> None:
        """Done when capture closes."""

    def run_ttmetal_process_ops(self) -> None:
        """Done when capture closes."""

    def post_process_ops(self) -> None:
        """Done when capture closes; says where the report is."""
        print(f"Wrote report to {self.profile_ops_perf_report}")

    def cleanup(self) -> None:
        """Nothing is left over."""
