"""The operators as torch modules agree with the host pipeline, also on the virtual chip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temper import etl
from temper.errors import UsageError

torch = pytest.importorskip("torch")

from temper.etl import modules, workloads  # noqa: E402
from temper.tuning.micro import BENCHMARKS, micro  # noqa: E402


def host(
    tmp_path: Path, operators: list[etl.Operator], texts: list[str], kind: str
) -> list[object]:
    schema = etl.Schema("s", (etl.Column("x", kind, "category"),))
    path = tmp_path / "x.tsv"
    path.write_text("".join(text + "\n" for text in texts))
    found: list[object] = etl.Pipeline(operators, schema).table(path)["x"].to_pylist()
    return found


def test_stateless_modules_agree_with_the_host(tmp_path: Path) -> None:
    values = [-3, 0, 1, 7, 250, 100_000]
    texts = [str(value) for value in values]
    x = torch.tensor(values, dtype=torch.float32)
    columns = ("x",)
    for operator in (
        etl.Neg2Zero(columns=columns),
        etl.Clip(0, 100, columns=columns),
        etl.Bucketize((0.0, 5.0, 250.0), columns=columns),
    ):
        expected = host(tmp_path, [operator], texts, "int")
        assert modules.stateless_module([operator])(x).tolist() == expected
    logs = [etl.Neg2Zero(columns=columns), etl.Logarithm("log1p", columns=columns)]
    np.testing.assert_array_max_ulp(
        modules.stateless_module(logs)(x).numpy(),
        np.array(host(tmp_path, logs, texts, "int"), dtype=np.float32), maxulp=2,
    )  # fmt: skip


def test_hexadecimal_codes_and_remainders_agree_with_python() -> None:
    words = ["00ff", "BEEF", "dead", "0a1B"]
    codes = torch.tensor([[ord(letter) for letter in word] for word in words])
    chain = modules.stateless_module([etl.Hex2Int(), etl.Modulus(97)])
    assert chain(codes).tolist() == [int(word, 16) % 97 for word in words]


def test_hexadecimal_is_exact_on_the_chip_up_to_seven_digits() -> None:
    import temper

    words = [f"{value:07x}" for value in (0, 1, 0xFFFFFFF, 0x1234567, 0xABCDEF0)]
    codes = torch.tensor([[ord(letter) for letter in word] for word in words])
    compiled = temper.compile(modules.Hex2Int().eval(), chip="e75", level=1)
    assert compiled(codes).tolist() == [int(word, 16) for word in words]


@pytest.mark.parametrize(
    ("floor", "bound", "order"), [(1, None, "appearance"), (2, 3, "frequency")]
)
def test_vocabulary_modules_agree_with_the_host(
    tmp_path: Path, floor: int, bound: int | None, order: str
) -> None:
    keys = [5, 3, 5, 9, 3, 5, 1, 9]
    gen = modules.VocabGen(16, min_count=floor, max_size=bound, order=order)
    for part in (keys[:3], keys[3:]):
        gen(torch.tensor(part))
    mapped = modules.VocabMap(gen.vocabulary, 16)(torch.tensor(keys)).tolist()
    operators = [etl.Hex2Int(), etl.VocabGen(floor, bound, order), etl.VocabMap()]
    assert mapped == host(tmp_path, operators, [f"{key:x}" for key in keys], "hex")


def test_a_split_table_gives_the_rows_of_the_whole_table_also_on_the_chip() -> None:
    import temper

    table = torch.randn(100, 32).to(torch.bfloat16).float()
    ids = torch.randint(0, 100, (4, 32))
    for splits in (1, 3, 4):
        lookup = modules.EmbeddingLookup.from_table(table, splits=splits).eval()
        assert torch.equal(lookup(ids), table[ids])
        assert torch.equal(temper.compile(lookup, chip="e75", level=1)(ids), table[ids])
    with pytest.raises(UsageError, match="cannot be split"):
        modules.EmbeddingLookup(3, 8, splits=4)


def test_one_hot_of_a_value_outside_is_zero() -> None:
    assert modules.OneHot(3)(torch.tensor([0, 2, 7])).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("board", ["e75", "e150"])
@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_workload_lies_in_the_guides_range(name: str, board: str) -> None:
    found = workloads.workload(name, board)
    assert found.gbps_low <= found.gbps <= found.gbps_high
    assert found.gbps == pytest.approx(found.moved_bytes / found.call_ns)
    assert found.expected is not None
    assert found.verdict == "within"
    assert found.extrapolated  # Grayskull has no measured rows near these ops
    assert workloads.workload(name, "n150").expected is None


def test_a_stream_is_limited_by_the_slowest_direction_of_the_link() -> None:
    found = workloads.workload("stateless", "e150")
    # As many bytes go in as come out, and out at 13 GB/s is the slower way: 2 * 13 GB/s,
    # less what the handling of pages takes.
    assert found.streamed_gbps == pytest.approx(26.0, rel=0.05)
    assert found.streamed_gbps <= 26.0
    assert found.gbps < found.streamed_gbps


def test_fusing_a_run_of_operators_is_never_slower() -> None:
    chain = [etl.Neg2Zero(), etl.Logarithm()]
    fused = workloads.pipeline_workload(chain, "e75", enable_fusing=True)
    apart = workloads.pipeline_workload(chain, "e75", enable_fusing=False)
    assert len(fused.ops) < len(apart.ops)
    assert fused.device_ns < apart.device_ns


def test_a_table_in_sram_is_faster_and_splitting_makes_a_large_one_fit() -> None:
    small = workloads.table_placement(1_000, 128, "e75")
    assert small.fits_sram
    assert small.speedup is not None
    assert small.speedup > 1
    large = workloads.table_placement(100_000, 512, "e75")
    assert large.sram_ns is None
    assert large.table_bytes == 204_800_000  # the guide's "200 MB"
    split = workloads.table_placement(100_000, 512, "e75", parts=4)
    assert split.sram_ns is not None
    assert split.sram_ns < split.dram_ns


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("chip", ["e75", "n150", "p150"])
def test_micro_benchmarks_carry_a_band_and_a_rate(name: str, chip: str) -> None:
    for item in micro(name, chip):
        assert item.low_ns <= item.time_ns <= item.high_ns
        assert item.rate > 0
        assert item.chip == chip
        if item.unit == "GB/s":
            assert item.share <= 1, item.case
