"""The ``temper`` command: each subcommand is one file, imported only when it runs."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings

import click

from temper._version import __version__
from temper.errors import TemperError, UsageError
from temper.units import shown, write_any_text

# name -> (module with a click command called `command`, one line for --help)
COMMANDS = {
    "advise": ("temper.cli.advise", "Boards, settings, limits and next steps on one page."),
    "bench": ("temper.cli.bench", "Measure a model honestly: warm-up, trials, interval, bytes."),
    "calibrate": ("temper.cli.calibrate", "Fit the cost model to measured op times, or check it."),
    "chip": ("temper.cli.chip", "Show a board's numbers and where they come from."),
    "compare": ("temper.cli.compare", "Two models, settings, boards or runs side by side."),
    "diff": ("temper.cli.diff", "Compare two profiles op by op."),
    "doctor": ("temper.cli.doctor", "Check host, driver, card and environment."),
    "emit": ("temper.cli.emit", "Write a model as a script that needs ttnn and numpy alone."),
    "etl": ("temper.cli.etl", "Run feature-preprocessing pipelines over files."),
    "explain": ("temper.cli.explain", "Climb the ladder of settings and say what each rung does."),
    "fit": ("temper.cli.fit", "The largest batch that fits, and what stops the next."),
    "legal": ("temper.cli.legal", "Offer every op of a model to the real ttnn."),
    "memory": ("temper.cli.memory", "Draw SRAM and DRAM over a compiled program."),
    "monitor": ("temper.cli.monitor", "Watch temperature, power, clocks and link of the cards."),
    "options": ("temper.cli.options", "List every compile option."),
    "passes": ("temper.cli.passes", "Show what each compiler pass did to a model."),
    "profile": ("temper.cli.profile", "Profile any command and write one run folder."),
    "report": ("temper.cli.report", "Report a run folder or a profiler CSV."),
    "run": ("temper.cli.run", "Run a script written for the card on the virtual chip."),
    "tune": ("temper.cli.tune", "Search for the fastest setting under an accuracy floor."),
    "verify": ("temper.cli.verify", "Compare a target with the virtual chip, op by op."),
    "weights": ("temper.cli.weights", "Write, explain and check weight-format overrides."),
}

# Raised by newer versions of click for a command that was given nothing: its text is the help.
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2)
            hint = f". Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"no command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples: 'temper chip n150', 'temper explain model.py:make', "
    "'temper profile \"python script.py\"'. Shell completion: "
    'eval "$(_TEMPER_COMPLETE=bash_source temper)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="temper")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def temper(ctx: click.Context, debug: bool) -> None:
    """Make PyTorch models fast on a single Tenstorrent chip, with or without the card."""
    ctx.obj = {"debug": debug}


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``temper``."""
    run_command(temper, "temper", argv)


def run_command(command: click.Command, name: str, argv: list[str] | None = None) -> None:
    """Run and exit: user errors are printed in one template, exit codes are 0, 1 or 2."""
    args = sys.argv[1:] if argv is None else argv
    _show_warnings_as_notes(name)
    write_any_text()
    debug = "--debug" in args[:1] or bool(os.environ.get("TEMPER_DEBUG"))
    try:
        code = command.main(args=args, prog_name=name, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except TemperError as error:
        if debug:
            traceback.print_exc()
        click.echo(shown(f"{name}: {error}"), err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        if isinstance(error, _HELP):
            error.show()
            sys.exit(2)
        if debug:
            traceback.print_exc()
        click.echo(f"{name}: {_in_our_words(error, name)}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (head, less); not a fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # A full disk or a folder without permission, where no command had more to say about it.
        if debug or error.errno is None:
            traceback.print_exc()
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"{name}: {error.strerror or error}{where}", err=True)
        sys.exit(2)


def _show_warnings_as_notes(name: str) -> None:
    """Our own warnings are for users: without the line of our source that gave them."""
    usual, ours = warnings.showwarning, os.path.dirname(os.path.dirname(__file__))

    def show(message, category, filename, *rest, **more):  # type: ignore[no-untyped-def]
        if filename.startswith(ours):
            click.echo(shown(f"{name}: note: {message}"), err=True)
        else:
            usual(message, category, filename, *rest, **more)

    warnings.showwarning = show


def _in_our_words(error: click.ClickException, name: str) -> UsageError:
    """Click's complaint in the one template, without its lines of usage."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    text = error.format_message().rstrip(".")
    return UsageError(text[:1].lower() + text[1:], see=f"{path} --help")
