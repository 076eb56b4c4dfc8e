"""Reads the text form of a program; every mistake is told with its line and column."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from temper.errors import BadFileError, TemperError
from temper.program.op import Op, Source
from temper.program.program import Program
from temper.program.table import KINDS
from temper.program.tensor import Memory, TensorSpec

# Deeper nesting than any attribute has; keeps hostile input from exhausting the stack.
_MAX_DEPTH = 32
# A string that may stand without quotes.
WORD = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<string>{_STRING})
      | (?P<value>%(?:{_STRING}|[\w.$]+))
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])
      | (?P<word>-?[A-Za-z_][\w.]*)
      | (?P<size>\d+x\d+)
      | (?P<mark>[][{{}}(),=:?])
      | (?P<comment>\#.*)
    )""",
    re.VERBOSE | re.ASCII,
)
_PLACE = re.compile(
    rf"""\#\s*(?:module\s+(?P<module>{_STRING}|[^\s"\#:]+))?\s*
    (?:(?P<file>{_STRING}|[^\s"\#:]+):(?P<line>\d+))?\s*\Z""",
    re.VERBOSE,
)
_CONSTANTS = {
    "true": True, "false": False, "null": None,
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip


def parse(text: str) -> Program:
    """The program that `to_text` printed; blank lines and lines that start with # are skipped."""
    header: tuple[str, str] | None = None
    options: dict[str, Any] = {}
    specs: dict[str, TensorSpec] = {}
    inputs: list[str] = []
    weights: dict[str, str] = {}
    state: dict[str, str] = {}
    ops: dict[bool, list[Op]] = {True: [], False: []}
    outputs: tuple[str, ...] | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip() or raw.lstrip().startswith("#"):
            continue
        line = _Line(raw, number, specs)
        if outputs is not None:
            line.fail("nothing may follow the return line")
        if header is None:
            header = line.header()
        elif line.accept("option"):
            name = line.text()
            line.expect("=")
            options[name] = line.literal()
        elif line.accept("input"):
            inputs.append(line.declared())
        elif line.accept("weight"):
            line.named(weights)
        elif line.accept("state"):
            line.named(state)
        elif line.accept("value"):
            line.declared()
        elif line.accept("return"):
            outputs = line.values() if line.kind == "value" else ()
        else:
            const = line.accept("const")
            ops[const].append(line.op())
        line.end()
    if header is None or outputs is None:
        what = "is empty" if header is None else "has no return line; it may be truncated"
        raise BadFileError(f"the program text {what}")
    name, chip = header
    return Program(name, chip, specs, tuple(ops[False]), tuple(inputs), outputs, weights,
                   tuple(ops[True]), options, state)  # fmt: skip


def operand_label(op: Op, index: int) -> str:
    """The name of an optional operand, e.g. ``bias``; required ones need none."""
    named = op.attrs.get("operands")
    if isinstance(named, list) and len(named) == len(op.inputs):
        label = named[index]
        return label if index and isinstance(label, str) and WORD.match(label) else ""
    kind = KINDS.get(op.kind)
    if kind is None or index >= len(kind.operands):
        return ""
    operand = kind.operands[index]
    return operand[:-1] if operand.endswith("?") else ""


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, text: str, number: int, specs: dict[str, TensorSpec]) -> None:
        self.source, self.number, self.known = text, number, specs
        self.position = 0
        self.comment = ""
        self.advance()

    def advance(self) -> None:
        if not self.source[self.position :].strip():
            self.kind, self.token, self.start = "end", "", len(self.source)
            return
        match = _TOKEN.match(self.source, self.position)
        if match is None:
            self.start = self.position
            self.fail(f"cannot read {self.source[self.position :].strip()[:20]!r}")
        self.kind = match.lastgroup or ""
        self.token, self.start = match.group(self.kind), match.start(self.kind)
        self.position = match.end()
        if self.kind == "comment":
            self.kind, self.comment = "end", self.token

    def fail(self, what: str) -> NoReturn:
        raise BadFileError(f"line {self.number}, column {self.start + 1}: {what}")

    def accept(self, token: str) -> bool:
        if self.kind in ("word", "mark") and self.token == token:
            self.advance()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}, found {self.token or 'the end of the line'!r}")

    def take(self, *kinds: str) -> str:
        if self.kind not in kinds:
            wanted = " or ".join(kinds)
            self.fail(f"expected a {wanted}, found {self.token or 'the end of the line'!r}")
        token = self.token
        self.advance()
        return token

    def end(self) -> None:
        if self.kind != "end":
            self.fail(f"unexpected {self.token!r}")

    def unquote(self, token: str) -> str:
        if not token.startswith('"'):
            return token
        try:
            return str(json.loads(token))
        except ValueError:
            self.fail(f"not a string: {token[:40]}")

    def text(self) -> str:
        return self.unquote(self.take("word", "string"))

    def value(self) -> str:
        return self.unquote(self.take("value")[1:])

    def values(self) -> tuple[str, ...]:
        names = [self.value()]
        while self.accept(","):
            names.append(self.value())
        return tuple(names)

    def header(self) -> tuple[str, str]:
        self.expect("program")
        name = self.text()
        self.expect("on")
        return name, self.text()

    def declared(self) -> str:
        name = self.value()
        self.specs((name,))
        return name

    def named(self, paths: dict[str, str]) -> None:
        """A value with the path of its data."""
        name = self.value()
        paths[name] = self.text()
        self.specs((name,))

    def specs(self, names: tuple[str, ...]) -> None:
        """The specs of values, kept; a value that is shown twice has one spec."""
        self.expect(":")
        for index, name in enumerate(names):
            if index:
                self.expect(",")
            if self.accept("?"):
                continue
            spec = self.spec()
            if self.known.setdefault(name, spec) != spec:
                self.fail(f"%{name} has two different specs")

    def spec(self) -> TensorSpec:
        fmt = self.take("word")
        self.expect("[")
        shape: list[int] = []
        while not self.accept("]"):
            if shape:
                self.expect(",")
            shape.append(self.integer(self.take("number")))
        layout, buffer = self.take("word"), self.take("word")
        sharding: str = "interleaved"
        grid = shard = None
        if self.kind == "word":
            sharding = self.take("word")
            grid, shard = self.size("grid"), self.size("shard")
        for given, allowed in (
            (layout, ("tile", "row_major")),
            (buffer, ("dram", "sram", "host")),
            (sharding, ("interleaved", "height", "width", "block")),
        ):
            if given not in allowed:
                self.fail(f"unknown word {given!r}; allowed are {' '.join(allowed)}")
        try:
            memory = Memory(buffer, sharding, grid, shard)  # type: ignore[arg-type]
            return TensorSpec(tuple(shape), fmt, layout, memory)  # type: ignore[arg-type]
        except TemperError as error:
            self.fail(error.what)

    def size(self, name: str) -> tuple[int, int]:
        self.expect(name)
        self.expect("=")
        first, second = self.take("size").split("x")
        return self.integer(first), self.integer(second)

    def integer(self, token: str) -> int:
        if not re.fullmatch(r"\d{1,18}", token):
            self.fail(f"expected a size, found {token[:40]!r}")
        return int(token)

    def op(self) -> Op:
        outputs: tuple[str, ...] = ()
        if self.kind == "value":
            outputs = self.values()
            self.expect("=")
        kind = self.take("word")
        self.expect("(")
        inputs: list[str] = []
        labels: list[str] = []
        while not self.accept(")"):
            if inputs:
                self.expect(",")
            labels.append("")
            if self.kind == "word":
                labels[-1] = self.take("word")
                self.expect("=")
            inputs.append(self.value())
        attrs = self.mapping(0) if self.accept("{") else {}
        if outputs:
            self.specs(outputs)
        self.end()
        op = Op(kind, tuple(inputs), outputs, attrs, self.place())
        self.check_labels(op, labels)
        return op

    def check_labels(self, op: Op, labels: list[str]) -> None:
        for index, label in enumerate(labels):
            expected = operand_label(op, index)
            if label and label != expected:
                self.fail(f"operand {index} of {op.kind} is not called {label!r}")

    def place(self) -> Source:
        if not self.comment:
            return Source()
        match = _PLACE.match(self.comment)
        if match is None:
            self.fail("expected a source such as '# module fc1 model.py:12'")
        return Source(
            self.unquote(match["module"] or ""),
            self.unquote(match["file"] or ""),
            self.integer(match["line"] or "0"),
        )

    def mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.accept("}"):
            if found:
                self.expect(",")
            name = self.text()
            if name in found:
                self.fail(f"{name!r} is given twice")
            self.expect("=")
            found[name] = self.literal(depth + 1)
        return found

    def literal(self, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            self.fail("nested too deeply")
        if self.accept("{"):
            return self.mapping(depth)
        if self.accept("["):
            items: list[Any] = []
            while not self.accept("]"):
                if items:
                    self.expect(",")
                items.append(self.literal(depth + 1))
            return items
        kind = self.kind
        token = self.take("string", "number", "word")
        if kind == "string":
            return self.unquote(token)
        if kind == "number":
            if len(token) > 64:
                self.fail("the number is too long")
            return float(token) if re.search(r"[.eE]", token) else int(token)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        if token.startswith("-"):
            self.fail(f"unexpected {token!r}")
        return token
