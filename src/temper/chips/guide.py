"""What the Grayskull tuning guide says of its boards: what they need, and the GB/s to expect.

The guide's own figures; nobody has published others. Not verified here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BoardNeeds:
    """What a board asks of the machine around it."""

    supply_w: int
    plugs: str
    cooling: str


# It names none for the newer boards.
GUIDE_NEEDS: dict[str, BoardNeeds] = {
    "e75": BoardNeeds(750, "one 6-pin plug", "active blower"),
    "e150": BoardNeeds(
        1000, "one 6+2-pin and one 6-pin plug", "passive: the case must move the air"
    ),
}

# The temperature above which it warns, for every board of its.
GUIDE_TEMPERATURE_C = 75.0
# Least, typical and most by board and kind of workload.
GUIDE_GBPS: dict[tuple[str, str], tuple[float, float, float]] = {
    ("e75", "stateless"): (6.0, 8.0, 10.0),
    ("e75", "stateful"): (3.0, 4.5, 6.0),
    ("e150", "stateless"): (10.0, 12.0, 14.0),
    ("e150", "stateful"): (5.0, 7.0, 9.0),
}
# Of single preprocessing operators.
GUIDE_OPERATOR_GBPS: dict[str, dict[str, float]] = {
    "e75": {"Neg2Zero": 8.2, "Logarithm": 7.9, "Hex2Int": 6.8, "VocabGen": 3.9, "VocabMap": 4.5},
    "e150": {
        "Neg2Zero": 12.5,
        "Logarithm": 12.1,
        "Hex2Int": 10.4,
        "VocabGen": 6.2,
        "VocabMap": 7.1,
    },
}
