"""``temper bench --workload`` and ``--micro``: the tuning guide's benchmarks, modelled."""

from __future__ import annotations

from temper import chips
from temper.cli.output import console, emit_json, table


def show_workload(name: str, chip: str, as_json: bool) -> None:
    """Prints one workload beside the guide's range."""
    from temper.etl.workloads import workload

    found = workload(name, chip)
    if as_json:
        emit_json(found.as_dict())
        return
    rows: list[tuple[object, ...]] = [
        ("throughput", f"{found.gbps:.2f} GB/s, band {found.gbps_low:.2f} to "
                       f"{found.gbps_high:.2f}"),
        ("counted", f"{found.moved_bytes:,} B in and out per call"),
        ("device", f"{found.device_ns / 1e3:,.0f} µs in {len(found.ops)} op(s): "
                   f"{', '.join(found.ops)}"),
        ("transfers", f"{found.transfer_ns / 1e3:,.0f} µs"),
        ("call", f"{found.call_ns / 1e3:,.0f} µs, limited by {found.bound}"),
        ("streamed", f"{found.streamed_gbps:.2f} GB/s where both directions of the link and the "
                     "device overlap"),
    ]  # fmt: skip
    if found.expected:
        wanted = found.expected
        rows.append(("guide", f"{wanted.low:g} to {wanted.high:g} GB/s, typically "
                              f"{wanted.typical:g}: {found.verdict}"))  # fmt: skip
        if found.verdict == "below" and found.bound == "link":
            board = chips.get(found.chip)
            rows.append(("why", f"one call at a time over {board.link_to_device_gbps:g} GB/s in, "
                         f"{board.link_from_device_gbps:g} GB/s out (modelled)"))  # fmt: skip
    else:
        rows.append(("guide", f"has no range for {found.chip}"))
    if found.extrapolated:
        rows.append(("evidence", "extrapolated: no measured rows near these ops on this board"))
    console().print(
        table(f"{found.name} on {found.chip}, modelled: {found.what}", ("", "modelled"), rows)
    )


def show_micro(name: str, chip: str, as_json: bool) -> None:
    """Prints every case of one micro-benchmark with the nearest measured row."""
    from temper.tuning.micro import micro

    found = micro(name, chip)
    if as_json:
        emit_json([item.as_dict() for item in found])
        return
    rows = [
        (
            item.case,
            f"{item.time_ns / 1e3:,.1f}",
            f"{item.low_ns / 1e3:,.1f} to {item.high_ns / 1e3:,.1f}",
            f"{item.rate:,.1f} {item.unit}",
            f"{item.share:.0%}",
            item.bound,
            item.neighbour or ("extrapolated" if item.extrapolated else "benchmark goldens"),
        )
        for item in found
    ]
    columns = ("case", "µs", "band", "rate", "of peak", "bound", "nearest measured")
    right = ("µs", "rate", "of peak")
    console().print(table(f"{name} on {found[0].chip}, modelled", columns, rows, right=right,
                          drop=("nearest measured", "bound")))  # fmt: skip
