"""Two profiles side by side: what got faster, slower, appeared, vanished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from temper.report.summary import Summary, short_code, summarise
from temper.run.calls import ALL, WARM
from temper.run.opening import Profile
from temper.run.table import OpTable
from temper.units import html_table, time_text

# Rows of the table in a notebook.
_SHOWN = 20

# Changes below this part of an op's time are not told as changes.
_SAME = 0.005


@dataclass(frozen=True)
class Change:
    """One op in both profiles; NaN-free: an op that is absent has count 0 and time 0."""

    name: str
    where: str
    before_ns: float
    after_ns: float
    before_count: float
    after_count: float

    @property
    def delta_ns(self) -> float:
        return self.after_ns - self.before_ns

    @property
    def kind(self) -> str:
        if not self.before_count:
            return "appeared"
        if not self.after_count:
            return "vanished"
        if abs(self.delta_ns) <= _SAME * max(self.before_ns, 1.0):
            return "same"
        return "slower" if self.delta_ns > 0 else "faster"


@dataclass(frozen=True)
class Comparison:
    """All ops, largest change first, and the totals. Times are of one call when ``per_call``."""

    before: Summary
    after: Summary
    changes: list[Change]
    per_call: bool
    before_total_ns: float
    after_total_ns: float

    @property
    def delta_ns(self) -> float:
        return self.after_total_ns - self.before_total_ns

    @property
    def ratio(self) -> float:
        """Relative change of the total; positive is slower."""
        return self.delta_ns / self.before_total_ns if self.before_total_ns else 0.0

    def explained(self, changes: Iterable[Change]) -> float:
        """Part of the total's change that these ops make up."""
        return sum(c.delta_ns for c in changes) / self.delta_ns if self.delta_ns else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "per_call": self.per_call,
            "before_total_ns": self.before_total_ns,
            "after_total_ns": self.after_total_ns,
            "ratio": self.ratio,
            "changes": [
                {**vars(c), "delta_ns": c.delta_ns, "kind": c.kind}
                for c in self.changes
                if c.kind != "same"
            ],
        }

    def _repr_html_(self) -> str:
        """The largest changes as a table, as a notebook shows it."""
        cells = []
        changed = [change for change in self.changes if change.kind != "same"]
        for change in changed[:_SHOWN]:
            times = (change.before_ns, change.after_ns, change.delta_ns)
            cells.append((change.name, *map(time_text, times), change.where))
        words = " against ".join(sorted({self.before.word, self.after.word}))
        total = f"{time_text(self.before_total_ns)} to {time_text(self.after_total_ns)}"
        above = f"{total} ({self.ratio:+.1%}), {words}"
        return html_table(above, ("op", "before", "after", "change", "where"), cells)


@dataclass
class _Entry:
    module: str
    code: str
    shape: str
    where: str
    total_ns: float = 0.0
    count: float = 0.0


def compare(before: Profile, after: Profile, calls: str = WARM) -> Comparison:
    """Ops by module path, kind and shape; what is left by module and kind, then by order.

    Of two runs one call is compared, a warm one unless others are asked for, so that their
    lengths do not matter.
    """
    per_call = before.run is not None and after.run is not None
    if per_call:
        one, other = before.chosen(calls), after.chosen(calls)
        per_call = bool(one.count and other.count)
        before, after = (one, other) if per_call else (before.chosen(ALL), after.chosen(ALL))
    a, b = summarise(before), summarise(after)
    if per_call:
        a, b = replace(a, calls=before.count), replace(b, calls=after.count)
    scale_a = 1.0 / a.calls if per_call else 1.0
    scale_b = 1.0 / b.calls if per_call else 1.0
    left, right = _entries(before.table, scale_a), _entries(after.table, scale_b)
    pairs: list[tuple[_Entry | None, _Entry | None]] = []
    for key in (
        lambda e: (e.module, e.code, e.shape),
        lambda e: (e.module, e.code),
        lambda e: e.code,
    ):
        found, left, right = _match(left, right, key)
        pairs += found
    pairs += [(entry, None) for entry in left] + [(None, entry) for entry in right]
    changes = [_change(one, other) for one, other in pairs]
    changes.sort(key=lambda change: -abs(change.delta_ns))
    return Comparison(a, b, changes, per_call, a.split.total * scale_a, b.split.total * scale_b)


def _entries(table: OpTable, scale: float) -> list[_Entry]:
    """Device ops merged by module, kind and shape, in order of first appearance."""
    kept = table.select(table.is_device)
    module, code, shape = (kept.text(name) for name in ("module", "code", "shape"))
    where, kernel, count = kept.text("location"), kept.number("kernel_ns"), kept.count
    found: dict[tuple[int, int, int], _Entry] = {}
    times = kernel * count
    for row in range(kept.rows):
        key = (int(module.codes[row]), int(code.codes[row]), int(shape.codes[row]))
        entry = found.get(key)
        if entry is None:
            entry = found[key] = _Entry(module[row], code[row], shape[row], where[row])
        entry.total_ns += float(times[row]) * scale if times[row] == times[row] else 0.0
        entry.count += float(count[row]) * scale
    return list(found.values())


def _match(
    left: list[_Entry], right: list[_Entry], key: Any
) -> tuple[list[tuple[_Entry | None, _Entry | None]], list[_Entry], list[_Entry]]:
    """Pair entries with equal keys in their order; return what is left of both."""
    waiting: dict[Any, list[_Entry]] = {}
    for entry in right:
        waiting.setdefault(key(entry), []).append(entry)
    pairs: list[tuple[_Entry | None, _Entry | None]] = []
    rest = []
    used = set()
    for entry in left:
        candidates = waiting.get(key(entry))
        if candidates:
            partner = candidates.pop(0)
            used.add(id(partner))
            pairs.append((entry, partner))
        else:
            rest.append(entry)
    return pairs, rest, [entry for entry in right if id(entry) not in used]


def _change(before: _Entry | None, after: _Entry | None) -> Change:
    shown = after or before
    assert shown is not None
    name = "  ".join(part for part in (shown.module, short_code(shown.code), shown.shape) if part)
    if before and after and before.shape != after.shape:
        name = f"{name} (was {before.shape})"
    return Change(
        name,
        shown.where,
        before.total_ns if before else 0.0,
        after.total_ns if after else 0.0,
        before.count if before else 0.0,
        after.count if after else 0.0,
    )
