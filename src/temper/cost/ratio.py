"""How much faster one setting of a program is than another, with the band of that ratio.

Both times come from one model, so what they share cancels: equal ops wholly, the part of an error
that is shared by ops of one bound as far as both have it. ``bands.ratio`` of the cost model takes
this file's place, with the correlations measured on left-out sources.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from temper.cost.records import OpCost

# As in a program's band: half of an op's error is shared by its kind, half is its own.
_SHARED = 0.5


def ratio(ops: Sequence[OpCost], others: Sequence[OpCost]) -> tuple[float, float, float]:
    """Modelled device time of one setting of a program over another's, with its 80% band."""
    first, second = ([op for op in part if op.bound != "host"] for part in (ops, others))
    time, other = (sum(op.kernel_ns + op.gap_ns for op in part) for part in (first, second))
    if not time or not other:
        return 1.0, 1.0, 1.0
    own: dict[tuple[str, float], float] = defaultdict(float)
    shared: dict[str, float] = defaultdict(float)
    for part, whole, sign in ((first, time, 1.0), (second, other, -1.0)):
        for op in part:
            if not op.kernel_ns:
                continue
            sides = (op.high_ns / op.kernel_ns, op.kernel_ns / max(op.low_ns, 1e-9))
            error = sign * math.log(max(sides)) * op.kernel_ns / whole
            own[op.bound, op.kernel_ns] += error
            shared[op.bound] += error
    square = _SHARED * sum(v * v for v in shared.values())
    square += (1 - _SHARED) * sum(v * v for v in own.values())
    value, width = time / other, math.sqrt(square)
    return value, value * math.exp(-width), value * math.exp(width)
