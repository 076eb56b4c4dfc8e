"""What the export options write: the program of a graph, and tt-mlir's performance counts."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from temper.files import write_text
from temper.options import Options
from temper.program import Op, Program
from temper.program.archive import save
from temper.program.text import to_text


def export(
    program: Program, weights: dict[str, torch.Tensor], options: Options, index: int
) -> None:
    """Write what export_path and ttnn_perf_metrics_enabled ask for, for graph ``index``."""
    if options["export_path"]:
        folder = Path(options["export_path"])
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{options['export_model_name'] or program.name}_g{index}"
        paths = set(program.weights.values()) if options["export_tensors"] else set()
        arrays = {p: weights[p].detach().cpu().float().numpy() for p in sorted(paths)}
        save(program, arrays, folder / f"{name}.temper")
        write_text(folder / f"{name}.txt", to_text(program))
    if options["ttnn_perf_metrics_enabled"]:
        asked = Path(options["ttnn_perf_metrics_output_file"] or "perf_metrics.json")
        target = asked.with_name(f"{asked.stem}_{index}{asked.suffix or '.json'}")
        write_text(target, json.dumps(perf_metrics(program), indent=2) + "\n")


def perf_metrics(program: Program) -> dict[str, int]:
    """Counts of ops by where their results lie, in tt-mlir's names."""
    device = [op for op in program.ops if not program.on_host(op)]

    def sharded(op: Op) -> bool:
        return any(program.spec(n).memory.sharded for n in op.outputs)

    left = {op.inputs[0] for op in device if op.kind == "ShardedToInterleaved"}
    spilled = sum(sharded(op) and not left.isdisjoint(op.outputs) for op in device)
    return {
        "total_ops": len(program.ops),
        "total_shardable_ops": sum(
            all(program.spec(n).layout == "tile" for n in op.outputs) for op in device
        ),
        "sharded_ops": sum(map(sharded, device)),
        "effectively_sharded_ops": sum(map(sharded, device)) - spilled,
        "sharded_and_spilled_ops": spilled,
        "dram_spilled_ops": sum(
            all(program.spec(n).memory.buffer == "dram" for n in op.outputs) for op in device
        ),
        "system_memory_ops": len(program.ops) - len(device),
    }
