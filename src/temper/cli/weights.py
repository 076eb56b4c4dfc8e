"""``temper weights``: write, explain and check weight-format overrides; tt-gen-weight-template."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from temper.cli import run_command
from temper.cli.output import console, emit_json, json_option, only_json, table
from temper.errors import UsageError

if TYPE_CHECKING:
    from temper.compiler.weight_explain import OverrideExplanation
    from temper.frontdoor.forge_loader import NamedModel

_EPILOG = """\b
Examples:
  temper weights template model.py:make > formats.json
  temper weights explain model.py:make formats.json
  temper weights explain model.py:make bfp_bf8
  temper weights check model.py:make formats.json
check exits with 1 if a pattern matches nothing.
"""
_DTYPES = ("bfp_bf8", "bfp_bf4", "bf16")
_default_dtype = click.option(
    "--default-dtype", default="bfp_bf8", show_default=True, help=f"One of {', '.join(_DTYPES)}."
)


@click.group(epilog=_EPILOG)
def command() -> None:
    """Weight formats by name: the files that apply_weight_dtype_overrides takes.

    A file is JSON: parameter names or globs to bf16, bfp_bf8 or bfp_bf4. The key "default" stands
    for every other *.weight; of several globs the later wins. Only matmul and linear weights
    change.
    """


@command.command(epilog="\b\nExample:\n  temper weights template model.py:make -o formats.json")
@click.argument("model")
@_default_dtype
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Write this file instead of standard output.")  # fmt: skip
def template(model: str, default_dtype: str, output: Path | None) -> None:
    """Print an override file with every weight of MODEL (file.py:callable, or a loader file)."""
    from temper.weights.overrides import dump_weight_names

    with only_json():
        named = _named_model(model)
        names = dump_weight_names(named.model, output, default_dtype)
        if output is None:
            emit_json(names)
    if output is not None:
        click.echo(f"wrote {output} ({len(names)} weights); "
                   f"next: temper weights explain {model} {output}")  # fmt: skip


@command.command(epilog="\b\nExamples:\n  temper weights explain model.py:make formats.json\n"
                 "  temper weights explain model.py:make bfp_bf8 --all")  # fmt: skip
@click.argument("model")
@click.argument("config")
@click.option("--all", "everything", is_flag=True, help="List every weight, not only those "
              "without effect.")  # fmt: skip
@json_option
def explain(model: str, config: str, everything: bool, as_json: bool) -> None:
    """Show what each pattern of CONFIG (file.json or a dtype) hits in MODEL, and what has no
    effect."""
    found = _explained(model, config)
    if as_json:
        emit_json(found)
        return
    _print_patterns(found)
    _print_weights(found, everything)


@command.command(epilog="\b\nExample:\n  temper weights check model.py:make formats.json --strict")
@click.argument("model")
@click.argument("config")
@click.option("--strict", is_flag=True, help="A pattern without any effect is a failure too.")
@json_option
def check(model: str, config: str, strict: bool, as_json: bool) -> None:
    """Check CONFIG against MODEL: exit 1 if a pattern matches no parameter."""
    found = _explained(model, config)
    idle = [p for p in found.patterns if p.matches and not p.takes_effect]
    failed = bool(found.unmatched) or (strict and bool(idle))
    if as_json:
        emit_json({"ok": not failed, "unmatched": found.unmatched, "without_effect": idle})
    else:
        for line in found.unmatched:
            near = f"; the nearest is {' or '.join(line.nearest)}" if line.nearest else ""
            click.echo(f"error: {line.pattern!r} matches no parameter{near}")
        for line in idle:
            why = "a later pattern decides all that it matches" if not line.decides else next(
                w.reason for w in found.weights if w.pattern == line.pattern)  # fmt: skip
            click.echo(f"{'error' if strict else 'note'}: {line.pattern!r} has no effect: {why}")
        changed = sum(w.effect for w in found.weights)
        click.echo(f"{len(found.patterns)} patterns, {len(found.weights)} weights named, "
                   f"{changed} take effect: {'failed' if failed else 'ok'}")  # fmt: skip
    sys.exit(1 if failed else 0)


@click.command(
    name="tt-gen-weight-template",
    epilog="\b\nExamples:\n"
    "  tt-gen-weight-template --loader llama/pytorch/loader.py --list-variants\n"
    "  tt-gen-weight-template --loader llama/pytorch/loader.py --variant 3.2_1B\n"
    "  tt-gen-weight-template --loader model.py:make --output-dir formats",
)
@click.option("--loader", required=True, help="loader.py with a ModelLoader, or file.py:callable.")
@click.option("--variant", help="Variant of the loader; its default without.")
@click.option("--list-variants", is_flag=True, help="List the loader's variants and stop.")
@click.option("--output-dir", type=click.Path(file_okay=False, path_type=Path),
              help="Folder [default: mixed_precision_configs beside the loader].")  # fmt: skip
@_default_dtype
@click.option("--auto-class", default="AutoModelForCausalLM", show_default=True,
              help="transformers class that builds the model from its configuration.")  # fmt: skip
@json_option
def template_command(
    loader: str,
    variant: str | None,
    list_variants: bool,
    output_dir: Path | None,
    default_dtype: str,
    auto_class: str,
    as_json: bool,
) -> None:
    """Write a weight-format file with every weight of a model, to be edited and applied."""
    from temper.weights.op import override_dtype
    from temper.weights.overrides import dump_weight_names

    override_dtype(default_dtype)
    if list_variants:
        _list_variants(loader, as_json)
        return
    named = _named_model(loader, variant, auto_class)
    folder = output_dir or _loader_folder(loader) / "mixed_precision_configs"
    path = folder / f"{named.name}.json"
    names = dump_weight_names(named.model, path, default_dtype)
    if as_json:
        emit_json({"path": str(path), "weights": names})
    else:
        click.echo(str(path))


def template_main(argv: list[str] | None = None) -> None:
    """Entry point of ``tt-gen-weight-template``."""
    run_command(template_command, "tt-gen-weight-template", argv)


def _is_callable_argument(argument: str) -> bool:
    head, _, name = argument.rpartition(":")
    return bool(head) and name.isidentifier()


def _loader_folder(argument: str) -> Path:
    head = argument.rpartition(":")[0] if _is_callable_argument(argument) else argument
    path = Path(head)
    if path.is_dir():
        return path
    return path.parent if head.endswith(".py") else Path()


def _named_model(
    argument: str, variant: str | None = None, auto_class: str = "AutoModelForCausalLM"
) -> NamedModel:
    from temper.frontdoor import forge_loader, loader

    if _is_callable_argument(argument):
        if variant is not None:
            raise UsageError(f"{argument} has no variants", try_=["leave --variant out"])
        head = argument.rpartition(":")[0]
        name = Path(head).stem if head.endswith(".py") else head.rsplit(".", 1)[-1]
        return forge_loader.NamedModel(name, loader.load(argument).model)
    return forge_loader.build(forge_loader.read_loader(Path(argument)), variant, auto_class)


def _list_variants(argument: str, as_json: bool) -> None:
    from temper.frontdoor import forge_loader

    if _is_callable_argument(argument):
        names: list[str] = []
    else:
        file = forge_loader.read_loader(Path(argument))
        names = file.names if as_json else list(forge_loader.variant_lines(file))
    if as_json:
        emit_json(names)
    else:
        click.echo("\n".join(names) if names else f"{argument} has no variants")


def _explained(model: str, config: str) -> OverrideExplanation:
    from temper.compiler.weight_explain import explain as explain_rules
    from temper.frontdoor import loader
    from temper.weights.config import read_config

    rules = read_config(config)
    if not _is_callable_argument(model):
        return explain_rules(_named_model(model).model, rules)
    loaded = loader.load(model)
    return explain_rules(loaded.model, rules, loaded.inputs, loaded.kwargs)


def _print_patterns(found: OverrideExplanation) -> None:
    rows: list[tuple[Any, ...]] = []
    for line in found.patterns:
        note = ""
        if not line.matches:
            near = f"; nearest: {', '.join(line.nearest)}" if line.nearest else ""
            note = f"matches nothing{near}"
        elif not line.decides:
            note = "a later pattern decides all that it matches"
        elif not line.takes_effect:
            note = "no effect"
        rows.append((line.pattern, line.dtype, line.matches, line.decides, line.takes_effect, note))
    columns = ("pattern", "dtype", "matches", "decides", "take effect", "")
    console().print(table("Patterns", columns, rows, right=columns[2:5]))


def _print_weights(found: OverrideExplanation, everything: bool) -> None:
    shown = [w for w in found.weights if everything or not w.effect or w.reason]
    rows = [
        (w.parameter, "x".join(map(str, w.shape)), w.pattern, w.requested,
         "yes" if w.effect else "no effect", w.reason)
        for w in shown
    ]  # fmt: skip
    if rows:
        title = "Weights" if everything else "Weights without effect, or with a remark"
        columns = ("weight", "shape", "pattern", "dtype", "effect", "reason")
        console().print(table(title, columns, rows))
    before = sum(w.size_bytes for w in found.weights)
    after = sum(w.new_size_bytes for w in found.weights)
    changed = sum(w.effect for w in found.weights)
    click.echo(
        f"{changed} of {len(found.weights)} named weights take effect; as tiles they go from "
        f"{_grouped(before)} to {_grouped(after)} bytes (computed). Judged by: {found.basis}."
    )


def _grouped(size_bytes: int) -> str:
    return f"{size_bytes:,}".replace(",", " ")
