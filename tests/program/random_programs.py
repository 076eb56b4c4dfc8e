"""A small program by hand, and a strategy for arbitrary ones."""

from __future__ import annotations

from hypothesis import strategies as st

from temper.formats import BLOCK_FORMATS, FORMATS
from temper.program import KINDS, Memory, Op, Program, Source, TensorSpec


def small_program() -> Program:
    """A linear layer and a top-k, with a const-eval op; sound on n150."""
    values = {
        "x": TensorSpec((64, 784)),
        "w": TensorSpec((784, 128), "bfloat8_b"),
        "b": TensorSpec((128,)),
        "b2": TensorSpec((128,), "float32"),
        "0": TensorSpec((64, 128), memory=Memory("sram", "height", (2, 1), (32, 128))),
        "1": TensorSpec((64, 5)),
        "2": TensorSpec((64, 5), "int32"),
    }
    matmul = Op(
        "Matmul",
        ("x", "w", "b2"),
        ("0",),
        {"fidelity": "HiFi2", "activations": [["relu"]]},
        Source("fc1", "model.py", 12),
    )
    return Program(
        name="mlp",
        chip="n150",
        values=values,
        ops=(matmul, Op("TopK", ("0",), ("1", "2"), {"k": 5})),
        inputs=("x",),
        outputs=("1", "2"),
        weights={"w": "fc1.weight", "b": "fc1.bias"},
        const_ops=(Op("Typecast", ("b",), ("b2",)),),
        options={"optimization_level": 2, "export_path": ""},
    )


sizes = st.integers(0, 5000)
pairs = st.tuples(st.integers(1, 64), st.integers(1, 4096))
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.one_of(st.from_regex(r"[\w.]{1,8}", fullmatch=True), texts)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
memories = st.one_of(
    st.sampled_from([Memory("dram"), Memory("sram"), Memory("host")]),
    st.builds(Memory, st.just("sram"), st.sampled_from(["height", "width", "block"]), pairs, pairs),
)
sources = st.builds(Source, texts, texts, st.integers(0, 10**6))


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    fmt = draw(st.sampled_from(FORMATS))
    layout = "tile" if fmt in BLOCK_FORMATS else draw(st.sampled_from(["tile", "row_major"]))
    shape = tuple(draw(st.lists(sizes, max_size=5)))
    return TensorSpec(shape, fmt, layout, draw(memories))  # type: ignore[arg-type]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any records that the types allow; most are not sound programs."""
    values = draw(st.dictionaries(names, specs(), min_size=1, max_size=6))
    known = st.sampled_from(sorted(values))
    ops = st.builds(
        Op,
        st.sampled_from(sorted(KINDS)),
        st.lists(known, max_size=4).map(tuple),
        st.lists(known, max_size=2, unique=True).map(tuple),
        st.dictionaries(texts, json_values, max_size=3),
        sources,
    )
    return Program(
        draw(texts),
        draw(texts),
        values,
        tuple(draw(st.lists(ops, max_size=4))),
        tuple(draw(st.lists(known, max_size=3))),
        tuple(draw(st.lists(known, max_size=3))),
        draw(st.dictionaries(known, texts, max_size=3)),
        tuple(draw(st.lists(ops, max_size=2))),
        draw(st.dictionaries(texts, json_values, max_size=3)),
    )
