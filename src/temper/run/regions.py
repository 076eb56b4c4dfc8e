"""Which rows of a card's CSV a report is about: one device's worth, and the part between signposts.

Both follow tt-perf-report, so that the two tools speak of the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from temper.errors import UsageError
from temper.run.table import OpTable

# Of a collective every device waits for the others: the mean says more than the slowest.
_COLLECTIVES = ("AllGather", "ReduceScatter", "AllReduce")


@dataclass(frozen=True)
class Region:
    """From one signpost to another. Without names: what follows the last signpost of a card's
    file; ``whole`` takes everything."""

    start: str = ""
    end: str = ""
    whole: bool = False

    @property
    def named(self) -> bool:
        return bool(self.start or self.end)


def signposts(table: OpTable) -> list[str]:
    """The signposts of a file, in order."""
    code = table.text("code")
    return [code[int(row)] for row in np.flatnonzero(table.text("type").equals("signpost"))]


def region_of(table: OpTable, region: Region) -> OpTable:
    """The rows of a region; what was chosen stands in the notes."""
    names = signposts(table)
    if region.whole or not names:
        if region.named:
            raise UsageError("the profile has no signposts", try_="without --from and --to")
        return table
    at = np.flatnonzero(table.text("type").equals("signpost"))
    found = ", ".join(dict.fromkeys(names))
    for name in (region.start, region.end):
        if name and name not in names:
            raise UsageError(f"no signpost is named {name!r}", found=found)
    first, last, told = 0, table.rows, ""
    if region.named:
        if region.start:
            first = int(at[names.index(region.start)]) + 1
        if region.end:
            ends = [int(row) for row, name in zip(at, names, strict=True) if name == region.end]
            later = [row for row in ends if row >= first]
            if not later:
                raise UsageError(f"signpost {region.end!r} does not come after {region.start!r}")
            last = later[0]
        told = f"ops from {region.start or 'the start'!r} to {region.end or 'the end'!r}"
    else:
        device = np.flatnonzero(table.is_device)
        # The last signpost that any op follows: scripts often end with one.
        followed = [row for row in at if (device > row).any()]
        if not followed:
            return table
        first = int(followed[-1]) + 1
        last = int(next((row for row in at if row > first), table.rows))
        told = f"ops after signpost {table.text('code')[first - 1]!r} only"
    kept = table.select(np.arange(first, last))
    note = f"{told}; signposts: {found} (--from, --to, --whole)"
    return replace(kept, notes=(*table.notes, note))


def one_device(table: OpTable) -> OpTable:
    """The rows of several devices as those of one: of ops that ran on all of them at once the
    slowest counts. Where the devices ran different ops, the busiest one is reported."""
    device = table.number("device")
    rows = np.flatnonzero(table.is_device & ~np.isnan(device))
    # Asked for nothing else, numpy's unique imports numpy.ma, a tenth of a short report.
    ids, _ = np.unique(device[rows], return_index=True)
    if len(ids) < 2:
        return table
    code, kernel = table.text("code").codes, table.number("kernel_ns")
    parts = [rows[device[rows] == number] for number in ids]
    others = np.setdiff1d(np.arange(table.rows), rows)
    same = all(
        len(part) == len(parts[0]) and (code[part] == code[parts[0]]).all() for part in parts
    )
    if not same:
        busiest = max(range(len(ids)), key=lambda i: float(np.nansum(kernel[parts[i]])))
        note = (
            f"{len(ids)} devices ran different ops: this is device {int(ids[busiest])}, the "
            "busiest; the others are left out"
        )
        kept = np.sort(np.concatenate([parts[busiest], others]))
        return replace(table.select(kept), notes=(*table.notes, note))
    grid = np.stack(parts)
    slowest = np.argmax(np.nan_to_num(kernel[grid], nan=-1.0), axis=0)
    chosen = grid[slowest, np.arange(grid.shape[1])]
    merged = np.array(kernel)
    names = table.text("code")
    collective = names.where([any(c in v for c in _COLLECTIVES) for v in names.values])[chosen]
    if collective.any():
        merged[chosen[collective]] = np.nanmean(kernel[grid[:, collective]], axis=0)
    # In the order of the first device, whose rows the others follow.
    order = np.concatenate([parts[0], others])
    picked = np.concatenate([chosen, others])[np.argsort(order, kind="stable")]
    whole = replace(table, numbers={**table.numbers, "kernel_ns": merged})
    note = f"{len(ids)} devices in one: the slowest counts for each op, the mean for collectives"
    return replace(whole.select(picked), notes=(*table.notes, note))
