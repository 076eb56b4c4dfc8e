"""Weight overrides in the fewest globs that mean the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import permutations

import numpy as np

_PLAIN = "bf16"


def compress(formats: Mapping[str, str]) -> dict[str, str]:
    """Patterns to formats for ``apply_weight_dtype_overrides``.

    ``formats`` holds every weight that a format can change; other parameters may be matched, for
    a format has no effect on them. One format may be the base, said by one broad rule; every
    other format is covered by the fewest globs that match none of its neighbours' weights (a
    minimum set cover, solved exactly). The base that needs the fewest rules wins.
    """
    names = list(formats)
    best: dict[str, str] | None = None
    used = list(dict.fromkeys([_PLAIN, *formats.values()]))
    for base in used:
        for order in permutations(f for f in used if f != base and f in formats.values()):
            rules = {} if base == _PLAIN else {_broad(names): base}
            for place, fmt in enumerate(order):
                # Later rules win, so a rule may also match what a later format covers.
                free = order[place:]
                wanted = [n for n in names if formats[n] == fmt]
                others = [n for n in names if formats[n] not in free]
                for pattern in _cover(wanted, others):
                    rules[pattern] = fmt
            if meaning(rules, names) != dict(formats):
                continue
            if best is None or (len(rules), len(str(rules))) < (len(best), len(str(best))):
                best = rules
    if best is None:
        best = {_escape(n): f for n, f in formats.items() if f != _PLAIN}
    return best


def meaning(rules: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What rules say about each name: the last match, else the default, else bfloat16."""
    found = {}
    for name in names:
        hits = [p for p in rules if p != "default" and fnmatchcase(name, p)]
        if hits:
            found[name] = rules[hits[-1]]
        elif "default" in rules and name.endswith(".weight"):
            found[name] = rules["default"]
        else:
            found[name] = _PLAIN
    return found


def _broad(names: list[str]) -> str:
    return "default" if all(n.endswith(".weight") for n in names) else "*"


@lru_cache(maxsize=200_000)
def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern)


def _cover(wanted: list[str], others: list[str]) -> list[str]:
    """The fewest globs that match all of ``wanted`` and none of ``others``."""
    covers: dict[frozenset[int], str] = {}
    for pattern in _candidates(wanted, others):
        if any(_fits(n, pattern) for n in others):
            continue
        hit = frozenset(i for i, n in enumerate(wanted) if _fits(n, pattern))
        if hit and (hit not in covers or _rank(pattern) < _rank(covers[hit])):
            covers[hit] = pattern
    sets = [s for s in covers if not any(s < other for other in covers)]
    return [covers[sets[i]] for i in _least(sets, len(wanted))]


def _rank(pattern: str) -> tuple[int, int]:
    return pattern.count("["), len(pattern)


def _candidates(wanted: list[str], others: list[str]) -> Iterable[str]:
    yield "*"
    numbers = _numbers(wanted, others)
    for name in dict.fromkeys(wanted):
        parts = name.split(".")
        yield _escape(name)
        shapes = {tuple(_escape(p) for p in parts)}
        for place, part in enumerate(parts):
            if part.isdigit():
                for shape in list(shapes):
                    shapes.add((*shape[:place], "*", *shape[place + 1 :]))
        for shape in shapes:
            yield ".".join(shape)
            for cut in range(1, len(shape)):
                yield "*." + ".".join(shape[cut:])
                yield "*" + ".".join(shape[cut:])
                yield ".".join(shape[:cut]) + ".*"
                for end in range(cut + 1, len(shape)):
                    yield "*." + ".".join(shape[cut:end]) + ".*"
        for place, part in enumerate(parts):
            if part.isdigit():
                yield from _classes(parts, place, numbers, wanted, others)


def _classes(
    parts: list[str],
    place: int,
    numbers: dict[str, set[str]],
    wanted: list[str],
    others: list[str],
) -> Iterable[str]:
    """Globs whose number is a class of digits: all the numbers that are wanted and not refused."""
    before = ".".join(_escape(p) for p in parts[:place])
    after = [_escape(p) for p in parts[place + 1 :]]
    tails = {"*", ".".join(after)}
    tails |= {"*." + ".".join(after[i:]) for i in range(1, len(after))}
    tails |= {".".join(after[:i]) + ".*" for i in range(1, len(after))}
    heads = {before + "." if before else "", "*" + parts[place - 1] + "." if place else ""}
    for head in heads:
        for tail in tails:
            free = [
                n
                for n in numbers[".".join(parts[:place])]
                if not any(_fits(o, f"{head}{n}.{tail}") for o in others)
                and any(_fits(w, f"{head}{n}.{tail}") for w in wanted)
            ]
            for group in _digits(free):
                yield f"{head}{group}.{tail}"


def _digits(numbers: list[str]) -> Iterable[str]:
    """One glob for all numbers that differ in their last digit only."""
    stems: dict[str, set[str]] = {}
    for number in numbers:
        stems.setdefault(number[:-1], set()).add(number[-1])
    for stem, last in stems.items():
        if len(last) > 1:
            yield f"{stem}[{_ranges(sorted(last))}]"


def _ranges(digits: list[str]) -> str:
    text = ""
    run: list[str] = []
    for digit in [*digits, ""]:
        if run and digit and int(digit) == int(run[-1]) + 1:
            run.append(digit)
            continue
        if run:
            text += f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(run)
        run = [digit]
    return text


def _numbers(wanted: list[str], others: list[str]) -> dict[str, set[str]]:
    """The numbers that stand after each prefix."""
    found: dict[str, set[str]] = {}
    for name in [*wanted, *others]:
        parts = name.split(".")
        for place, part in enumerate(parts):
            if part.isdigit():
                found.setdefault(".".join(parts[:place]), set()).add(part)
    return found


def _escape(text: str) -> str:
    """Names may hold glob characters; fnmatch has no other way than a class of one."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _least(sets: list[frozenset[int]], count: int) -> list[int]:
    """Minimum set cover by HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix = np.zeros((count, len(sets)))
    for column, members in enumerate(sets):
        matrix[list(members), column] = 1
    solved = milp(
        np.ones(len(sets)),
        constraints=LinearConstraint(matrix, lb=np.ones(count)),
        integrality=np.ones(len(sets)),
        bounds=Bounds(0, 1),
        options={"time_limit": 20.0},
    )
    return [i for i, x in enumerate(solved.x) if x > 0.5]
