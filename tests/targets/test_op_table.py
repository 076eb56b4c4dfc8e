"""Every device op against the reference interpreter, over formats and ragged shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from temper.program import KINDS
from temper.program.tensor import BLOCK_FORMATS
from temper.targets.virtual import functions
from temper.targets.virtual.builder import KERNELS
from temper.targets.virtual.executor import Executor
from temper.targets.virtual.reference import REFERENCE, interpret, rounded

from .op_cases import FLOATS, Case, binary_case, data, program, unary_case
from .op_cases_compute import COMPUTE
from .op_cases_data import DATA
from .op_cases_decode import DECODE

OTHERS = [*COMPUTE, *DATA, *DECODE]

# Relative to the largest value: one step of the format, since a result that lies next to a rounding
# boundary may fall on either side of it. Block formats add the step of the shared exponent.
TOLERANCE = {"float32": 3e-6, "bfloat16": 2**-7, "bfloat8_b": 2**-6, "bfloat4_b": 2**-2}


def check(case: Case, format_name: str, exact_accumulation: bool = False) -> None:
    made = program(case, format_name)
    arrays = data(case)
    kept = {path: rounded(arrays.pop(0), made.spec(name)) for name, path in made.state.items()}
    tensors = [torch.from_numpy(a) for a in arrays]
    state = {path: torch.from_numpy(array).float() for path, array in kept.items()}
    executor = Executor(made, {}, state=state, exact_accumulation=exact_accumulation)
    results = executor.run(tensors)
    expected = interpret(made, {}, arrays, state=kept, exact_accumulation=exact_accumulation)
    for path, array in kept.items():
        np.testing.assert_array_equal(state[path].double().numpy(), array)
    for name, result, wanted in zip(made.outputs, results, expected, strict=True):
        assert tuple(result.shape) == made.spec(name).shape
        compare(
            result.double().numpy().reshape(-1), wanted.reshape(-1), made.spec(name).format, case
        )


def compare(got: np.ndarray, wanted: np.ndarray, format_name: str, case: Case) -> None:
    if case.exact:
        np.testing.assert_array_equal(got, wanted)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    got, wanted = got[finite], wanted[finite]
    top = np.abs(wanted).max(initial=0.0)
    # A block's largest value sets the step of the others.
    size = top if format_name in BLOCK_FORMATS else np.abs(wanted)
    bound = TOLERANCE.get(format_name, 0.0) * size + 2e-6 * (1 + top)
    assert (np.abs(got - wanted) <= bound).all()
    if format_name == "bfloat16" and got.size > 50:
        assert np.mean(got == wanted) > 0.9


@pytest.mark.parametrize("name", sorted(functions.UNARY))
def test_a_unary_function_rounds_its_reference_once(name: str) -> None:
    case = unary_case(name)
    if name == "bitwise_not":
        case = Case(
            "Unary",
            ((3, 33),),
            ((3, 33),),
            case.attrs,
            formats=("int32",),
            output_formats=("int32",),
            exact=True,
        )
    for format_name in ("bfloat16", "float32"):
        check(case, format_name)


@pytest.mark.parametrize("name", sorted(functions.BINARY))
def test_a_binary_function_rounds_its_reference_once(name: str) -> None:
    for format_name in ("bfloat16", "float32"):
        check(binary_case(name), format_name)


@pytest.mark.parametrize("case", OTHERS, ids=lambda c: c.name)
def test_an_op_follows_its_rule_in_bfloat16(case: Case) -> None:
    check(case, "bfloat16")


@pytest.mark.parametrize("case", [c for c in OTHERS if not c.formats], ids=lambda c: c.name)
def test_an_op_follows_its_rule_in_the_other_formats(case: Case) -> None:
    for format_name in FLOATS[1:]:
        check(case, format_name)


@pytest.mark.parametrize(
    "case", [c for c in OTHERS if c.kind in ("Matmul", "Conv2d", "Sdpa")], ids=lambda c: c.name
)
def test_exact_accumulation_rounds_dest_every_sixteen(case: Case) -> None:
    check(case, "bfloat16", exact_accumulation=True)


@pytest.mark.parametrize("fidelity", ["LoFi", "HiFi2", "HiFi3", "HiFi4"])
@pytest.mark.parametrize("format_name", ["bfloat16", "float32", "bfloat8_b"])
@pytest.mark.parametrize(
    "case", [c for c in OTHERS if c.kind in ("Matmul", "Conv2d", "Sdpa")][4::2]
)
def test_a_constant_operand_gives_the_same_numbers_as_an_input(
    case: Case, format_name: str, fidelity: str
) -> None:
    case = replace(case, attrs={**case.attrs, "fidelity": fidelity})
    made = program(case, format_name)
    tensors = [torch.from_numpy(a) for a in data(case)]
    weights = dict(zip(made.inputs[1:], tensors[1:], strict=True))
    constant = made.replace(inputs=made.inputs[:1], weights={name: name for name in weights})
    (wanted,) = Executor(made, {}).run(tensors)
    executor = Executor(constant, weights)
    for _ in range(2):
        (got,) = executor.run(tensors[:1])
        assert torch.allclose(got, wanted, rtol=2**-7, atol=1e-5 * float(wanted.abs().max()))
        executor.set_weights(weights)


def test_a_query_without_an_open_key_gives_zeros_as_in_torch() -> None:
    case = Case("Sdpa", (*((1, 2, 5, 8),) * 3, (1, 1, 5, 5)), ((1, 2, 5, 8),), {"fp32_acc": True})
    q, k, v, mask = (torch.from_numpy(a) for a in data(case))
    mask = torch.where(torch.ones(5, 5).tril(-1).bool(), 0.0, float("-inf")).expand_as(mask)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    made = program(case, "float32")
    (got,) = Executor(made, {}).run([q, k, v, mask])
    assert torch.equal(got[:, :, 0], torch.zeros(1, 2, 8))
    assert torch.allclose(got, expected, atol=0.05)
    (slow,) = interpret(made, {}, [t.numpy() for t in (q, k, v, mask)])
    assert np.isfinite(slow).all()


def test_every_kind_of_the_table_has_a_kernel_a_reference_and_a_case() -> None:
    cased = {case.kind for case in OTHERS}
    for kind in set(KINDS) - {"Host"}:
        assert kind in KERNELS, kind
        assert kind in REFERENCE, kind
        assert kind in cased, kind
    assert "Host" in KERNELS
