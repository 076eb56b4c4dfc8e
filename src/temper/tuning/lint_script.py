"""Lint of a benchmark script: reads its syntax tree for mistakes between the two clocks."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from temper.errors import BadFileError, UsageError
from temper.tuning.lint import Smell

_CLOCKS = {"perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "default_timer"}
_RANDOM = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "random", "normal",
    "uniform", "choice", "shuffle", "bernoulli", "standard_normal", "integers", "sample",
}  # fmt: skip
_ALLOCATE = {
    "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like",
    "clone", "tensor", "from_numpy", "array",
}  # fmt: skip
_LOAD = {
    "open", "load", "DataLoader", "read_csv", "read_parquet", "load_dataset", "from_pretrained",
    "imread", "next", "read_text", "read_bytes",
}  # fmt: skip
_PRINT = {"print", "tqdm", "pprint"}
_COMPILE = {"compile", "pybuda_compile"}
_WARM_CALLS = 3


@dataclass(frozen=True)
class _Region:
    """Statements between a clock read and the subtraction that ends it."""

    start: int
    end: int
    statements: tuple[ast.stmt, ...]
    before: tuple[ast.stmt, ...]


def lint_script(path: Path) -> list[Smell]:
    """Findings in every timed region of a Python file, in the order of lines."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise UsageError(f"no file {path}") from None
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise BadFileError(f"{path} is no Python script", found=str(error)) from None
    regions = [r for body in _bodies(tree) for r in _regions(body)]
    found: list[Smell] = []
    if not regions:
        return [Smell("untimed", "no timed region: no clock is read twice", line=1)]
    for region in regions:
        found += _inside(region)
        found += _warmed(region)
    return sorted(set(found), key=lambda f: f.line)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _regions(body: list[ast.stmt]) -> Iterator[_Region]:
    for index, statement in enumerate(body):
        name = _clock_target(statement)
        if name is None:
            continue
        for later in range(index + 1, len(body)):
            if _subtracts(body[later], name):
                inner = tuple(body[index + 1 : later])
                yield _Region(statement.lineno, body[later].lineno, inner, tuple(body[:index]))
                break


def _clock_target(statement: ast.stmt) -> str | None:
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Call)
        and _name(statement.value) in _CLOCKS
    ):
        return statement.targets[0].id
    return None


def _subtracts(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.right, ast.Name)
        and node.right.id == name
        for node in ast.walk(statement)
    )


def _inside(region: _Region) -> Iterator[Smell]:
    for call in _calls(region.statements):
        name, text = _name(call), ast.unparse(call.func)
        where = f"{text}() inside the timed region (lines {region.start} to {region.end})"
        if name in _PRINT:
            yield Smell("printing", f"printing: {where}", line=call.lineno)
        elif name in _RANDOM:
            yield Smell("random", f"random numbers: {where}", line=call.lineno)
        elif name in _LOAD:
            yield Smell("loading", f"data loading: {where}", line=call.lineno)
        elif name in _ALLOCATE:
            yield Smell("allocation", f"allocation: {where}", line=call.lineno)
        elif name in _COMPILE and "re." not in text:
            yield Smell("compile", f"compilation: {where}", True, call.lineno)


def _warmed(region: _Region) -> Iterator[Smell]:
    """Whatever the region calls in a loop must have been called before the clock started."""
    known = _CLOCKS | _PRINT | _RANDOM | _ALLOCATE | _LOAD | _COMPILE
    timed = {
        _name(c): ast.unparse(c.func)
        for c in _calls(region.statements)
        if isinstance(c.func, ast.Name)
        and _name(c) not in known
        and not hasattr(builtins, _name(c))
    }
    for name, text in timed.items():
        warm = sum(_weight(s, name) for s in region.before)
        if "warmup" in {_name(c) for c in _calls(region.before)} or warm >= _WARM_CALLS:
            continue
        said = f"{warm} calls" if warm else "no call"
        yield Smell(
            "unwarmed",
            f"{text} is timed with {said} before the clock: the first calls compile, fill the "
            f"program cache and record the trace; call it at least {_WARM_CALLS} times before",
            True,
            region.start,
        )


def _weight(statement: ast.stmt, name: str) -> int:
    """How many times a statement calls a name, as far as the text tells; unknown loops are many."""
    total = sum(_name(c) == name for c in _calls((statement,)))
    if not total or not isinstance(statement, (ast.For, ast.While)):
        return total
    if isinstance(statement, ast.For) and isinstance(statement.iter, ast.Call):
        arguments = statement.iter.args
        if _name(statement.iter) == "range" and len(arguments) == 1:
            bound = arguments[0]
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
                return total * bound.value
    return total * _WARM_CALLS


def _calls(statements: tuple[ast.stmt, ...]) -> Iterator[ast.Call]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield node


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
