"""Mixed precision, solved: sensitivities, modelled gains, an exact assignment, verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from temper.tuning.accuracy import Probe, loss
from temper.tuning.variants import FORMATS, Unit

Assignment = dict[str, str]  # unit value -> format
Table = Mapping[str, Mapping[str, float]]  # unit value -> format -> figure
# Measurements spent on moving the error budget up and down.
_ROUNDS = 10
# Measurements spent on exchanging formats of one or two units, once the budget stands.
_EXCHANGES = 12
# Energies add up only nearly: an exchange may take this many times the room that is left.
_UNSURE = 2.0
# An exchange that gains less than this share of a call is not worth a measurement.
_WORTH = 0.002


@dataclass(frozen=True)
class Point:
    """One assignment that was measured."""

    formats: Mapping[str, str]
    time_ns: float  # modelled
    accuracy: Mapping[str, float]  # measured
    met: bool

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "formats": dict(self.formats), "accuracy": dict(self.accuracy)}


def sensitivities(
    probe: Probe,
    units: Sequence[Unit],
    run: Callable[[], torch.Tensor],
    *,
    known: Mapping[str, Mapping[str, float]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    keep: Callable[[dict[str, dict[str, float]]], None] = lambda table: None,
) -> dict[str, dict[str, float]]:
    """Energy of the error that one unit in one format adds, relative to the output's own.

    Errors of different weights are nearly independent, so their energies add up; a correlation
    of 1 - x goes with an energy of about 2x.
    """
    probe.set_formats({})
    base = run().double()
    size = float((base - base.mean()).square().sum()) or 1.0
    table: dict[str, dict[str, float]] = {k: dict(v) for k, v in (known or {}).items()}
    total = len(units) * (len(FORMATS) - 1)
    for number, unit in enumerate(units):
        row = table.setdefault(unit.name, {"bf16": 0.0})
        for place, fmt in enumerate(FORMATS[1:]):
            if fmt not in row:
                probe.set_formats({unit.value: fmt})
                error = run().double() - base
                row[fmt] = float((error - error.mean()).square().sum()) / size
            progress(number * 2 + place + 1, total)
        if number % 8 == 7:
            keep(table)
    keep(table)
    return table


def solve(times: Table, energies: Table, budget: float) -> Assignment:
    """The fastest formats whose energies add up to no more than the budget: exact, by HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    names = list(times)
    choices = [(name, fmt) for name in names for fmt in times[name]]
    cost = np.array([times[name][fmt] for name, fmt in choices])
    error = np.array([energies[name][fmt] for name, fmt in choices])
    if not names:
        return {}
    # Fastest first where nothing binds: HiGHS need not be asked.
    free = {n: min(times[n], key=lambda f: (times[n][f], energies[n][f])) for n in names}
    if sum(energies[n][free[n]] for n in names) <= budget:
        return free
    rows = np.repeat(np.arange(len(names)), [len(times[n]) for n in names])
    one = csr_array((np.ones(len(choices)), (rows, np.arange(len(choices)))))
    # Energies span many orders of magnitude; in units of the budget HiGHS keeps its precision.
    scaled = error / budget if budget > 0 else np.where(error > 0, 2.0, 0.0)
    # A choice that alone breaks the budget is out.
    upper = np.where(scaled > 1.0, 0.0, 1.0)
    scaled = np.minimum(scaled, 2.0)
    span = float(np.ptp(cost)) or 1.0
    solved = milp(
        (cost - cost.min()) / span,
        constraints=[
            LinearConstraint(one, 1, 1),
            LinearConstraint(scaled[None, :], -np.inf, 1.0),
        ],
        integrality=np.ones(len(choices)),
        bounds=Bounds(0, upper),
        options={"time_limit": 10.0, "mip_rel_gap": 1e-6},
    )
    if solved.x is None:
        return dict.fromkeys(names, "bf16")
    return {choices[i][0]: choices[i][1] for i in np.flatnonzero(solved.x > 0.5)}


def assign(
    times: Table,
    energies: Table,
    measure: Callable[[Assignment], Point],
    target: float | None,
) -> list[Point]:
    """Points measured on the way to the fastest assignment that meets the floors.

    The three uniform formats first. Then the budget starts where the floor foretells it and is
    moved by what the whole model measures: down where the floor is missed (the repair), up where
    there is room.
    """
    names = list(times)
    uniform = [dict.fromkeys(names, fmt) for fmt in FORMATS]
    points = [measure(one) for one in uniform]
    seen = {_key(one): point for one, point in zip(uniform, points, strict=True)}
    most = sum(max(row.values()) for row in energies.values())
    if most <= 0:
        return points
    # With nothing to keep, the fastest of all; often that is the end already.
    fastest = solve(times, energies, most)
    if _key(fastest) not in seen:
        points.append(measure(fastest))
        seen[_key(fastest)] = points[-1]
    if seen[_key(fastest)].met:
        return points
    least = min((e for row in energies.values() for e in row.values() if e > 0), default=most)
    low, high = least / 2, most
    budget = min(max(target or (low * high) ** 0.5, low * 1.01), high * 0.99)
    for _ in range(_ROUNDS):
        chosen = solve(times, energies, budget)
        key = _key(chosen)
        if key not in seen:
            seen[key] = measure(chosen)
            points.append(seen[key])
        if seen[key].met:
            low = budget
        else:
            high = budget
        if high / low < 1.02:
            break
        # Bisection in the logarithm, in small steps while the other side is far away.
        middle = (low * high) ** 0.5
        budget = min(middle, budget * 3) if seen[key].met else max(middle, budget / 3)
    if target is not None:
        _exchange(times, energies, measure, target, points, seen)
    return points


def _exchange(
    times: Table,
    energies: Table,
    measure: Callable[[Assignment], Point],
    target: float,
    points: list[Point],
    seen: dict[tuple[tuple[str, str], ...], Point],
) -> None:
    """Use what the budget left: change one or two units of the fastest point that keeps the floor.

    Sums of energies decide nearly right, and the last unit that a budget refuses is often a large
    one: a smaller one, or one for another, may still go in.
    """
    plain = loss(points[0].accuracy)
    worth = _WORTH * min(min(row.values()) for row in times.values())
    for _ in range(_EXCHANGES):
        met = [dict(key) for key, point in seen.items() if point.met]
        if not met:
            return
        held = min(met, key=lambda one: sum(times[name][fmt] for name, fmt in one.items()))
        room = target - 2 * (loss(seen[_key(held)].accuracy) - plain)
        tries = [
            (error, change)
            for saved, error, change in _exchanges(times, energies, held)
            if saved > worth and error <= _UNSURE * room and _key(held | change) not in seen
        ]
        if not tries:
            return
        chosen = held | min(tries, key=lambda item: item[0])[1]
        points.append(measure(chosen))
        seen[_key(chosen)] = points[-1]


def _exchanges(
    times: Table, energies: Table, held: Assignment
) -> Iterator[tuple[float, float, Assignment]]:
    """Time saved, energy added and the change, for all changes of one unit or two."""
    steps = [
        (name, fmt, times[name][held[name]] - times[name][fmt],
         energies[name][fmt] - energies[name][held[name]])
        for name in times for fmt in times[name] if fmt != held[name]
    ]  # fmt: skip
    for number, (name, fmt, saved, error) in enumerate(steps):
        yield saved, error, {name: fmt}
        for other, second, more, further in steps[number + 1 :]:
            if other != name:
                yield saved + more, error + further, {name: fmt, other: second}


def front(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats in both speed and accuracy, fastest first."""
    best: list[Point] = []
    for one in sorted(points, key=lambda p: (p.time_ns, loss(p.accuracy))):
        if not best or loss(one.accuracy) < loss(best[-1].accuracy):
            best.append(one)
    return best


def _key(formats: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(formats.items()))
