"""``tt_profile [-h] [-o OUTPUT_PATH] [-p PORT] "test_command"``: tt-torch's profiler command."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from temper.errors import TemperError, UsageError
from temper.units import shown, write_any_text

DEFAULT_CSV = Path("results") / "perf" / "device_ops_perf_trace.csv"


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
    """The command; ``environment`` is added to that of the profiled one."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    write_any_text()
    try:
        sys.exit(_run(arguments, environment))
    except TemperError as error:
        print(shown(f"tt_profile: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _run(arguments: Sequence[str], environment: Mapping[str, str] | None) -> int:
    from temper.frontdoor.profile_command import profile_command

    given, extra = _parser().parse_known_args(arguments)
    if extra:
        whole = shlex.join([given.test_command, *extra])
        raise UsageError("the command must be quoted", try_=f"tt_profile {shlex.quote(whole)}")
    directory, csv = targets(given.output_path)
    code = profile_command(
        given.test_command, directory, port=given.port, csv=csv, environment=environment
    )
    copy_trace(directory)
    return code


def copy_trace(directory: Path) -> None:
    """The Tracy file also where tt-torch's tree has it, when the command runs in such a tree."""
    from temper.run.folder import TRACY

    trace, home = directory / TRACY, Path("install") / "tt-metal"
    if trace.is_file() and home.is_dir():
        there = home / "generated" / "profiler" / TRACY
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trace, there)


def targets(output_path: str | None) -> tuple[Path, Path | None]:
    """The run folder, and the CSV beside it when the output path names a file."""
    path = Path(output_path) if output_path else DEFAULT_CSV
    if path.suffix.lower() == ".csv":
        return path.with_suffix(""), path
    return path, None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tt_profile",
        description="Profile a command and every process it starts.",
        epilog='Example: tt_profile -o results/mnist.csv "pytest -svv tests/test_mnist.py"',
    )
    parser.add_argument(
        "-o",
        "--output_path",
        "--output-path",
        dest="output_path",
        metavar="OUTPUT_PATH",
        help=f"CSV file (with a run folder beside it) or a run folder; default {DEFAULT_CSV}",
    )
    parser.add_argument(
        "-p",
        "--port",
        dest="port",
        metavar="PORT",
        type=int,
        help="port of the capture server; default 8086 or the next free one",
    )
    parser.add_argument("test_command", help="the command, quoted")
    return parser


if __name__ == "__main__":
    main()
