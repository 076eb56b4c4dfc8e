"""Dynamic programming over the schedule: where every tensor lies, by modelled time.

A state says where the live tensors lie, what that took so far, and which bytes of a core they
hold, kept by the real allocator. At every op each state branches into the ways to run it; states
that agree on all live tensors are one, the fastest; the best few go on. A way that does not fit
first lets a live tensor go to DRAM, so a place that is too small costs that place alone. The
state with everything in DRAM always goes on: SRAM is never modelled slower than without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count as counter

from temper.placement.pieces import Meter, Piece, move
from temper.placement.ways import Way, WayBook
from temper.program.allocator import BankAllocator
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import DRAM, is_view

FAR = 1 << 30
# States that go on from one op to the next, and candidates that are tried for them.
_STATES = 16
_TRIES = 12 * _STATES


@dataclass(slots=True)
class Choice:
    """How one op runs in a plan: spills before it, the way, and what stays of its moves."""

    index: int
    way: Way
    kept: int  # the piece whose result replaces its operand for later readers, or -1
    spills: tuple[str, ...]
    before: State
    into: int | None = None  # the operand whose memory takes the result


@dataclass(slots=True)
class State:
    """Where the live tensors lie after some ops. ``lies`` and ``tags`` name those not at home."""

    cost_ns: float
    sram: BankAllocator
    lies: dict[str, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    parent: Choice | None = None
    spills: tuple[str, ...] = ()  # made before the next op
    read: frozenset[str] = frozenset()  # values in SRAM that an op has read from there

    @property
    def ahead_ns(self) -> float:
        return sum(self.ahead.values())


@dataclass(slots=True)
class _Candidate:
    state: State
    way: Way
    kept: int
    ahead: dict[str, float]


class NothingFits(Exception):
    """No way to run an op fits, even with everything else in DRAM."""

    def __init__(self, index: int, op: Op, way: Way) -> None:
        super().__init__(op.kind)
        self.index, self.op, self.way = index, op, way


class PlanSearch:
    """One program's plans.

    ``sram`` is the empty allocator of what tensors and buffers of a core may use, ``whole`` that
    of all its bytes.
    """

    def __init__(
        self, book: WayBook, meter: Meter, sram: BankAllocator, whole: BankAllocator
    ) -> None:
        self.book, self.meter, self.sram, self.whole = book, meter, sram, whole
        self.program: Program = book.program
        self.states = _STATES if book.sram else 1

    def run(self) -> list[Choice]:
        """The choices of the fastest plan, in schedule order."""
        beam = [State(0.0, self.sram)]
        for index in range(len(self.program.ops)):
            beam = self._step(index, beam)
        best = min(beam, key=lambda state: state.cost_ns)
        path: list[Choice] = []
        link = best.parent
        while link is not None:
            path.append(link)
            link = link.before.parent
        return path[::-1]

    def next_use(self, name: str, index: int) -> int:
        """The first op after ``index`` that reads a value."""
        return next((use for use in self.book.uses.get(name, ()) if use > index), FAR)

    # --- one op ---------------------------------------------------------------------------------

    def _step(self, index: int, beam: list[State]) -> list[State]:
        order = counter()
        heap: list[tuple[float, int, _Candidate]] = []

        def branch(state: State) -> None:
            for rank, candidate in self._branches(index, state):
                heap.append((rank, next(order), candidate))

        for state in beam:
            branch(state)
        heapq.heapify(heap)
        accepted: dict[frozenset[tuple[str, int]], State] = {}
        tries, plain = 0, False
        spilled: set[tuple[int, tuple[str, ...]]] = set()
        failed: Way | None = None
        while heap and (len(accepted) < self.states or not plain):
            _, _, candidate = heapq.heappop(heap)
            full = len(accepted) >= self.states or (accepted and tries > _TRIES)
            if full and (plain or not _at_home(candidate)):
                continue
            tries += 1
            made = self._after(index, candidate)
            if made is None:
                failed = candidate.way
                for state in self._spilled(index, candidate.state, spilled):
                    for rank, more in self._branches(index, state):
                        heapq.heappush(heap, (rank, next(order), more))
                continue
            key = frozenset(made.lies.items())
            known = accepted.get(key)
            if known is None or made.cost_ns < known.cost_ns:
                accepted[key] = made
                plain = plain or not made.lies
        if not accepted:
            assert failed is not None
            raise NothingFits(index, self.program.ops[index], failed)
        return list(accepted.values())

    def _branches(self, index: int, state: State) -> Iterator[tuple[float, _Candidate]]:
        op, book = self.program.ops[index], self.book
        lies, home = state.lies, book.home
        inputs = tuple(lies.get(name, home[name]) for name in op.inputs)
        rest = {name: ns for name, ns in state.ahead.items() if name not in op.inputs}
        rest_ns = sum(rest.values())
        later = [n for n in dict.fromkeys(op.inputs) if n in state.ahead or n in lies]
        later = [name for name in later if self.next_use(name, index) != FAR]
        stay = {
            name: book.readers_ns(name, index, lies.get(name, home[name]), lies) for name in later
        }
        stay_ns = sum(stay.values())
        known: dict[tuple[int, ...], dict[str, float]] = {}
        for way in book.ways(index, inputs):
            numbers = tuple(book.id(spec) for spec in way.results)
            out = known.get(numbers)
            if out is None:
                out = known[numbers] = (
                    {
                        name: book.readers_ns(name, index, number, lies)
                        for name, number in zip(op.outputs, numbers, strict=True)
                    }
                    if book.sram
                    else {}
                )
            base = state.cost_ns + way.run_ns + rest_ns + sum(out.values())
            yield base + stay_ns, _Candidate(state, way, -1, {**rest, **stay, **out})
            for piece, name in self._keepable(op, way, later):
                number = book.id(way.pieces[piece].output_specs[0])
                ahead_ns = book.readers_ns(name, index, number, lies)
                ahead = {**rest, **stay, name: ahead_ns, **out}
                yield base + stay_ns - stay[name] + ahead_ns, _Candidate(state, way, piece, ahead)

    def _keepable(self, op: Op, way: Way, later: list[str]) -> Iterator[tuple[int, str]]:
        """Moves of operands that later ops read too: the moved form may stay instead."""
        for number, piece in enumerate(way.pieces):
            if piece.main or piece.op.kind == "Halo":
                break
            name = op.inputs[piece.inputs[0]]
            if name in later and piece.output_specs[0].memory.buffer == "sram":
                yield number, name

    # --- memory ---------------------------------------------------------------------------------

    def _after(self, index: int, candidate: _Candidate) -> State | None:
        """The state after the op, or None when it does not fit."""
        state, way, kept = candidate.state, candidate.way, candidate.kept
        op = self.program.ops[index]
        # An op alone in SRAM may use all of it, as without SRAM placement.
        alone = not state.sram.used and kept < 0 and _at_home(candidate)
        sram = (self.whole if alone else state.sram).copy()
        tags, lies = dict(state.tags), dict(state.lies)
        dead = {name for name in op.inputs if self.next_use(name, index) == FAR}
        replaced = op.inputs[way.pieces[kept].inputs[0]] if kept >= 0 else None
        last: dict[int | str, int] = {}
        for number, piece in enumerate(way.pieces):
            for source in piece.inputs:
                last[op.inputs[source] if source >= 0 else source] = number
        made: dict[int, list[str]] = {}
        main, into = -1, None
        for number, piece in enumerate(way.pieces):
            mine = made[-1 - number] = self._tags(index, number, piece, made, tags, op)
            if piece.op.kind == "BinaryNg":
                into = self._into(piece, op, dead, tags, kept)
                if into is not None:
                    taken = piece.inputs[into]
                    mine = made[taken] if taken < 0 else [tags[op.inputs[taken]]]
                    made[-1 - number] = mine
            if piece.op.kind == "Move":  # the old place is let go before the new one is taken
                for tag in made[piece.inputs[0]]:
                    sram.free(tag)
            for tag, size in zip(mine, way.sizes[number], strict=True):
                if not size or tag in sram:
                    continue
                if not sram.has_room(size):
                    return None
                sram.allocate(tag, size)
            if way.circular[number] > sram.room_below():
                return None
            for reached, user in last.items():
                if user != number:
                    continue
                if isinstance(reached, str):
                    gone = reached in dead or reached == replaced
                    if gone and reached in tags:
                        _let_go(sram, tags.pop(reached), (*tags.values(), *mine))
                elif -1 - reached != kept:
                    for tag in made[reached]:
                        _let_go(sram, tag, mine)
            if piece.main:
                main = -1 - number
        after = self._settled(index, candidate, sram, tags, lies, made[main], dead, replaced)
        assert after.parent is not None
        after.parent.into = into
        return after

    def _into(
        self, piece: Piece, op: Op, dead: set[str], tags: dict[str, str], kept: int
    ) -> int | None:
        """The operand in shards that nobody reads again and whose memory suits the result."""
        out = piece.output_specs[0]
        for place, (source, spec) in enumerate(zip(piece.inputs, piece.input_specs, strict=True)):
            if spec != out or not spec.memory.sharded or spec.memory.buffer != "sram":
                continue
            if source < 0 and -1 - source != kept:
                return place
            name = op.inputs[source] if source >= 0 else ""
            shared = [tags[n] for n in tags if n != name]
            if name in dead and name in tags and tags[name] not in shared:
                return place
        return None

    def _tags(
        self,
        index: int,
        number: int,
        piece: Piece,
        made: dict[int, list[str]],
        tags: dict[str, str],
        op: Op,
    ) -> list[str]:
        """Names of a piece's results in the allocator: a view has the name of what it views."""
        source = piece.inputs[0] if piece.inputs else 0
        if piece.op.kind == "Reshape" and is_view(piece.input_specs[0], piece.output_specs[0]):
            if source < 0:
                return made[source]
            if op.inputs[source] in tags:
                return [tags[op.inputs[source]]]
        return [f"{index}.{number}.{k}" for k in range(len(piece.output_specs))]

    def _settled(
        self,
        index: int,
        candidate: _Candidate,
        sram: BankAllocator,
        tags: dict[str, str],
        lies: dict[str, int],
        outs: list[str],
        dead: set[str],
        replaced: str | None,
    ) -> State:
        state, way, book = candidate.state, candidate.way, self.book
        op = self.program.ops[index]
        for name in dead:
            lies.pop(name, None)
        if replaced is not None:
            lies[replaced] = book.id(way.pieces[candidate.kept].output_specs[0])
            tags[replaced] = f"{index}.{candidate.kept}.0"
        for name, tag, spec in zip(op.outputs, outs, way.results, strict=True):
            if spec.memory.buffer == "host" and book.home[name] != book.id(spec):
                lies[name] = book.id(spec)
            if tag not in sram:
                continue
            if spec.memory.buffer != "sram" or self.next_use(name, index) == FAR:
                _let_go(sram, tag, tags.values())
                continue
            lies[name], tags[name] = book.id(spec), tag
        if not sram.used:
            sram = self.sram
        ahead = {n: ns for n, ns in candidate.ahead.items() if self.next_use(n, index) != FAR}
        choice = Choice(index, way, candidate.kept, state.spills, state)
        read = state.read | {name for name in op.inputs if name in state.tags}
        return State(state.cost_ns + way.run_ns, sram, lies, tags, ahead, choice, (), read)

    def _spilled(
        self, index: int, state: State, done: set[tuple[int, tuple[str, ...]]]
    ) -> Iterator[State]:
        """The state with one live tensor moved to DRAM: the one needed last, or the largest."""
        live = [n for n in state.tags if n not in self.program.ops[index].inputs]
        reread = [
            n
            for n in state.tags
            if n in self.program.ops[index].inputs and self.next_use(n, index) != FAR
        ]
        held = state.sram.used
        victims = []
        if live:
            victims = [
                max(live, key=lambda n: (self.next_use(n, index), n)),
                max(live, key=lambda n: (held[state.tags[n]].size, n)),
            ]
        elif reread or state.tags:
            pool = reread or list(state.tags)
            victims = [max(pool, key=lambda n: (held[state.tags[n]].size, n))]
        root = id(state.parent)
        for name in dict.fromkeys(victims):
            mark = (root, tuple(sorted((*state.spills, name))))
            if mark not in done:
                done.add(mark)
                yield self.spill(index, state, name)

    def peak_bytes(self, choice: Choice, way: Way) -> int:
        """Most bytes of a core that a way of a chosen op would take, with what is live."""
        held = choice.before.sram.statistics().allocated_bytes
        return held + max(
            sum(sizes) + circular for sizes, circular in zip(way.sizes, way.circular, strict=True)
        )

    def spill(self, index: int, state: State, name: str) -> State:
        """The state after moving a value to DRAM before op ``index``."""
        book, op = self.book, self.program.ops[index]
        piece = move(book.spec(state.lies[name]), DRAM, 0, op)
        cost_ns = state.cost_ns + self.meter.measure(piece)[0]
        sram, tags, lies = state.sram.copy(), dict(state.tags), dict(state.lies)
        _let_go(sram, tags.pop(name), tags.values())
        del lies[name]
        ahead = dict(state.ahead)
        ahead[name] = book.readers_ns(name, index - 1, book.home[name], lies)
        spills = (*state.spills, name)
        return State(cost_ns, sram, lies, tags, ahead, state.parent, spills, state.read)


def _let_go(sram: BankAllocator, tag: str, others: Iterable[str]) -> None:
    """Free a buffer unless another value lies in it."""
    if tag in sram and tag not in others:
        sram.free(tag)


def _at_home(candidate: _Candidate) -> bool:
    """Whether the candidate leaves nothing in SRAM."""
    return (
        not candidate.state.lies
        and candidate.kept < 0
        and all(spec.memory.buffer != "sram" for spec in candidate.way.results)
    )
