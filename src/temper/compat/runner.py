"""Runs a script or module as ``python`` would, with the stand-ins importable."""

from __future__ import annotations

import importlib.util
import io
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

from temper import chips
from temper.compat import children, install
from temper.compat import clock as virtual_clock
from temper.errors import TemperError, UsageError


def run_script(
    script: str,
    args: Sequence[str],
    *,
    chip: str | None,
    clock: str,
    draw: int | None,
    as_module: bool,
) -> None:
    """Never returns differently from ``python script args``: same argv, path and exit code."""
    if chip is not None:
        os.environ["TEMPER_CHIP"] = chips.get(chip).name
    install.install()
    os.environ.update(children.environment(clock, draw))
    virtual_clock.install(clock, draw)
    if clock != "wall":
        print(f"temper: --clock {clock}: {_shown(clock, draw)}", file=sys.stderr)
    try:
        if as_module:
            _module(script, args)
        else:
            _file(script, args)
    except TemperError:
        raise
    except Exception as error:
        # A script's own error: its traceback, without the frames that started it.
        own = _below(error.__traceback__)
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, own)
        else:
            sys.excepthook(type(error), error, own)
        sys.exit(1)
    finally:
        virtual_clock.uninstall()


def _shown(clock: str, draw: int | None) -> str:
    """What the script's clock shows, and why modelled calls do not scatter."""
    rest = "its own work on the host" if clock == "device" else "its own work and compiling"
    if draw is None:
        spread = (
            "calls of one program take the same modelled time, without the scatter of a card; "
            "--draw SEED takes another time from the model's band"
        )
    else:
        spread = f"modelled times are draw {draw} from their band"
    return (
        "the script's clock shows modelled device and transfer time, and real time of "
        f"{rest}; {spread}"
    )


def _file(script: str, args: Sequence[str]) -> None:
    path = Path(script)
    if path.is_dir():
        path = path / "__main__.py"
    try:
        with io.open_code(str(path.absolute())) as file:
            source = file.read()
    except OSError as error:
        raise UsageError(f"cannot open {script!r}: {error.strerror}") from None
    sys.argv = [script, *args]
    _set_first_path(str(path.absolute().parent))
    main = ModuleType("__main__")
    main.__file__ = str(path.absolute())
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(compile(source, main.__file__, "exec"), main.__dict__)


def _module(name: str, args: Sequence[str]) -> None:
    _set_first_path(os.getcwd())
    sys.argv = ["-m", *args]
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    if found is None:
        raise UsageError(f"no module named {name!r}")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _set_first_path(folder: str) -> None:
    """The first entry is where ``temper`` itself was started from; python puts the script's."""
    if not getattr(sys.flags, "safe_path", False):  # python -P has no such entry
        sys.path[:1] = [folder]


def _below(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on."""
    here = {__file__, runpy.__file__, "<frozen runpy>"}
    while frames is not None and frames.tb_frame.f_code.co_filename in here:
        frames = frames.tb_next
    return frames
