"""The device's program cache: which ops were built before in this process."""

from __future__ import annotations

import threading

from temper.program import Op, Program


class ProgramCache:
    """Keys are op kind, attributes and tensor specs, per chip; as in ttnn, hashes are kept."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._lock = threading.Lock()

    def touch(self, program: Program) -> tuple[int, int]:
        """Look every op up and add it; (hits, misses)."""
        hits = 0
        with self._lock:
            for op in program.ops:
                key = _key(program, op)
                hits += key in self._known
                self._known.add(key)
        return hits, len(program.ops) - hits

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


def _key(program: Program, op: Op) -> int:
    specs = tuple(program.values[n] for n in (*op.inputs, *op.outputs))
    return hash((program.chip, op.kind, repr(sorted(op.attrs.items())), specs))


PROGRAM_CACHE = ProgramCache()
