"""The memory plan of a placed program, and its chart."""

from __future__ import annotations

import json

from programs import cnn, mlp, transformer

from temper.chips import get
from temper.cli.memory import sram_lines
from temper.placement.place import place
from temper.program.memory_plan import plan

N150 = get("n150")


def test_dram_adds_up():
    made = plan(place(mlp(64, 1024, 3), N150, 1))
    # Three weights of 32x32 tiles and three biases of 32 tiles, in 12 banks of whole tiles.
    assert made.dram_weights == 12 * 2048 * (3 * 86 + 3 * 3)
    assert made.dram_inputs == 12 * 2048 * 6
    assert made.dram_high_water == made.dram_weights + made.dram_inputs + made.dram_activations


def test_a_trace_takes_its_region_from_dram():
    placed = place(mlp(), N150, 1)
    untraced, traced = plan(placed), plan(placed, options={"enable_trace": True})
    assert traced.dram_high_water - untraced.dram_high_water == traced.trace_region_bytes > 0


def test_sram_high_water_is_the_largest_op():
    made = plan(place(cnn(), N150, 2))
    peak = made.peak_steps(1)[0]
    assert made.sram_high_water == peak.circular_bytes + sum(peak.sram.values())
    assert made.sram_high_water <= made.sram_capacity


def test_tensors_are_freed_after_their_last_reader():
    placed = place(transformer(2), N150, 2)
    made = plan(placed)
    last = dict(placed.last_use())
    for op in reversed(placed.ops):  # a view, and what is written in place, keeps its operand
        for name in op.inputs[:1]:
            last[name] = max(last.get(name, 0), *(last.get(out, 0) for out in op.outputs))
    for step in made.steps:
        assert all(last[name] >= step.index for name in step.sram if name in last)


def test_the_plan_is_json():
    document = json.loads(json.dumps(plan(place(cnn(), N150, 2)).as_dict()))
    assert document["sram"]["high_water_bytes_per_core"] > 0
    assert len(document["ops"]) > 10


def test_the_chart_has_a_column_an_op_and_stays_in_its_width():
    made = plan(place(transformer(12), N150, 2))
    lines = sram_lines(made.steps, made.sram_capacity, columns=60)
    assert max(len(line) for line in lines) <= 80
    assert any("█" in line for line in lines)
    few = plan(place(mlp(), N150, 2))
    assert len(sram_lines(few.steps, few.sram_capacity)) == len(lines)
