"""``temper.stats``: what compiling and calling cost so far."""

from __future__ import annotations

from typing import Any

import torch

from temper.compiler.cache import default_cache
from temper.errors import UsageError
from temper.frontdoor.aliases import memory_of
from temper.frontdoor.compiled import CompiledModel
from temper.frontdoor.loaded import LoadedGraph, loaded_graphs
from temper.program.memory_plan import plan


def stats(model: Any = None) -> dict[str, Any]:
    """Compile time by stage, calls, cache hits, trace bytes and memory, for a compiled model.

    Without a model: of every graph of this process. A model compiled by torch.compile is found
    by the weights that its graphs hold.
    """
    graphs = _graphs(model)
    stages: dict[str, float] = {}
    for graph in graphs:
        for name, seconds in graph.stats.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds
    return {
        "graphs": len(graphs),
        "compile_seconds": stages,
        "calls": sum(g.stats.calls for g in graphs),
        "replays": sum(g.stats.replays for g in graphs),
        "weight_updates": sum(g.stats.weight_updates for g in graphs),
        "program_cache": {
            "hits": sum(g.stats.cache_hits for g in graphs),
            "misses": sum(g.stats.cache_misses for g in graphs),
        },
        "compile_cache": default_cache().counts.as_dict(),
        "trace_bytes": sum(g.stats.trace_bytes for g in graphs),
        "host_ops": sum(len(g.program.host_ops) for g in graphs),
        "device_ops": sum(len(g.program.ops) - len(g.program.host_ops) for g in graphs),
        "memory": _memory(graphs),
        "modelled_call_ns": [g.cost().call_ns for g in graphs],
        "modelled_total_ns": sum(g.stats.device_ns for g in graphs),
        "measured_wall_ns": sum(g.stats.wall_ns for g in graphs),
        "weight_formats": [e.as_dict() for g in graphs for e in g.built.weight_report],
    }


def _graphs(model: Any) -> list[LoadedGraph]:
    if model is None:
        return loaded_graphs()
    if isinstance(model, CompiledModel):
        return model.loaded
    if isinstance(model, torch.nn.Module):
        held = {memory_of(t) for t in (*model.parameters(), *model.buffers())} - {None}
        graphs = loaded_graphs()
        return [g for g in graphs if any(memory_of(t) in held for t in g._weights.values())]
    raise UsageError(f"temper.stats takes a compiled model, not {type(model).__name__}")


def _memory(graphs: list[LoadedGraph]) -> dict[str, int]:

    plans = [plan(g.program) for g in graphs]
    return {
        "sram_high_water_bytes_per_core": max((p.sram_high_water for p in plans), default=0),
        "dram_high_water_bytes": max((p.dram_high_water for p in plans), default=0),
    }
