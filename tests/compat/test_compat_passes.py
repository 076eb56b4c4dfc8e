"""tt-xla's passes by name: what they leave in a graph, and that the numbers stay."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from temper.compat import tt_torch_ops as ops
from temper.compat import tt_torch_passes as passes


def graph_of(model: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The graph that Dynamo hands to a backend."""
    found: list[fx.GraphModule] = []

    def backend(module: fx.GraphModule, _: Any) -> Any:
        found.append(module)
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(*inputs)
    return found[0]


def targets(module: fx.GraphModule) -> list[Any]:
    return [n.target for n in module.graph.nodes if n.op in ("call_function", "call_method")]


@pytest.mark.parametrize("as_method", [False, True])
@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        ((0,), ops.composite_topk_values),
        ((1,), ops.composite_topk_indices),
        ((0, 1), ops.composite_topk),
    ],
)
def test_a_top_k_becomes_what_is_read_of_it(
    read: tuple[int, ...], wanted: Any, as_method: bool
) -> None:
    def top(x: torch.Tensor) -> Any:
        made = x.topk(3) if as_method else torch.topk(x, 3)
        return [made[i] for i in read]

    x = torch.randn(4, 10)
    module = graph_of(top, x)
    passes.handle_composite_ops(module)
    assert wanted in targets(module)
    assert (operator.getitem in targets(module)) == (len(read) == 2)
    for one, other in zip(module(x), top(x), strict=True):
        assert torch.equal(one, other)


def test_functions_and_modules_become_composites_with_their_parameters() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.groups = nn.LayerNorm(8), nn.GroupNorm(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.norm(self.groups(x)), approximate="tanh")

    net, x = Net().eval(), torch.randn(2, 4, 8)
    nn.init.normal_(net.norm.weight)
    traced = fx.symbolic_trace(net)  # keeps modules as calls of modules
    passes.handle_composite_ops(traced)
    assert targets(traced) == [
        ops.composite_group_norm, ops.composite_layer_norm, ops.composite_gelu,
    ]  # fmt: skip
    torch.testing.assert_close(traced(x), net(x))


def _expanded(x: torch.Tensor, count: int) -> torch.Tensor:
    users, heads, rows, width = x.shape
    return (
        x[:, :, None]
        .expand(users, heads, count, rows, width)
        .reshape(users, heads * count, rows, width)
    )


@pytest.mark.parametrize("how", ["interleave", "expand", "tile", "one side"])
def test_repeated_key_heads_are_left_to_attention_where_that_is_the_same(how: str) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if how == "interleave":
            k, v = k.repeat_interleave(4, 1), torch.repeat_interleave(v, 4, dim=1)
        elif how == "tile":  # other heads for each query
            k, v = k.repeat(1, 4, 1, 1), v.repeat(1, 4, 1, 1)
        else:
            k = _expanded(k, 4)
            v = _expanded(v, 4) if how == "expand" else v.repeat(1, 4, 1, 1)
        return F.scaled_dot_product_attention(q, k, v)

    q, k, v = torch.randn(1, 8, 6, 16), torch.randn(1, 2, 6, 16), torch.randn(1, 2, 6, 16)
    module = graph_of(attend, q, k, v)
    passes.erase_repeat_kv(module)
    found = module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
    assert bool(found[0].kwargs.get("enable_gqa")) == (how in ("interleave", "expand"))
    by_name = {"l_q_": q, "l_k_": k, "l_v_": v}  # Dynamo orders inputs by their first use
    given = [by_name[n.name] for n in module.graph.find_nodes(op="placeholder")]
    torch.testing.assert_close(module(*given)[0], attend(q, k, v))


def test_writes_in_place_are_counted_and_survive() -> None:
    def write(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache.copy_(x)
        return x * 2

    module = graph_of(write, torch.zeros(3), torch.ones(3))
    assert passes.count_inplace_mutations(module) == 1
    passes.run_fusion_passes(module)
    assert passes.count_inplace_mutations(module) == 1
    cache = torch.zeros(3)
    module(cache, torch.ones(3))
    assert torch.equal(cache, torch.ones(3))


def test_an_rms_norm_written_out_is_fused_and_a_look_alike_is_not() -> None:
    class Norm(nn.Module):
        def __init__(self, power: int) -> None:
            super().__init__()
            self.weight, self.power = nn.Parameter(torch.randn(32)), power

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.to(torch.float32)
            mean = wide.pow(self.power).mean(-1, keepdim=True)
            return self.weight * (wide * torch.rsqrt(mean + 1e-6)).to(x.dtype)

    x = torch.randn(2, 32)
    for power, fused in ((2, True), (4, False)):
        module = graph_of(Norm(power), x)
        before = module(*_given(module, x))[0]
        assert passes.run_fusion_passes(module) is module
        assert (F.rms_norm in targets(module)) == fused
        torch.testing.assert_close(module(*_given(module, x))[0], before)


def _given(module: fx.GraphModule, x: torch.Tensor) -> list[Any]:
    """Dynamo lifts parameters to inputs."""
    return [
        x if n.meta["example_value"].shape == x.shape
        else torch.arange(32.0)
        for n in module.graph.find_nodes(op="placeholder")
    ]  # fmt: skip


def test_inputs_are_marked_by_their_role() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.register_buffer("scale", torch.ones(3))
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.weight * self.scale + self.count

    program = torch.export.export(Net(), (torch.randn(3),)).run_decompositions({})
    module = passes.insert_argument_type_markers(
        program.graph_module, program.graph_signature, {"p_weight": "weight"}
    )
    marks = [n for n in module.graph.nodes if n.target is torch.ops.tt.mark_argument_attributes]
    roles = {n.kwargs["name"]: n.kwargs["argument_type"] for n in marks}
    assert roles == {"weight": "parameter", "b_scale": "constant", "b_count": "input", "x": "input"}


def test_promotions_that_nobody_asked_for_and_empty_casts_go() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    convert = torch.ops.prims.convert_element_type.default

    def promoted(x: torch.Tensor) -> torch.Tensor:
        return convert(convert(x, torch.float32) * 2, torch.bfloat16)

    x = torch.randn(4, dtype=torch.bfloat16)
    module = make_fx(promoted)(x)
    assert targets(module).count(convert) == 2
    module = passes.bypass_dtype_promotion_and_redundant_cast(module, (x,))
    assert convert not in targets(module)
    assert torch.equal(module(x), x * 2)


@pytest.mark.parametrize("a_sparse", [False, True])
def test_sparse_matmul_is_the_product_where_the_mask_is_set(a_sparse: bool) -> None:
    weights = torch.randn(1, 4, 8, 5)
    first = torch.randn(3, 4, 2, 8) if a_sparse else torch.randn(3, 6, 2, 8)
    mask = torch.randint(0, 2, (1, 1, 3, 4) if a_sparse else (3, 6, 1, 4)).float()
    made = torch.ops.tt.sparse_matmul(first, weights, mask, 0, a_sparse, not a_sparse)
    assert made.shape == ((3, 4, 2, 5) if a_sparse else (3, 6, 1, 4, 2, 5))
    for a in range(3):
        for e in range(4):
            if a_sparse:
                wanted = first[a, e] @ weights[0, e] * mask[0, 0, a, e]
                torch.testing.assert_close(made[a, e], wanted)
            else:
                wanted = first[a, 5] @ weights[0, e] * mask[a, 5, 0, e]
                torch.testing.assert_close(made[a, 5, 0, e], wanted)
