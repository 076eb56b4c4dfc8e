"""CSVs of cards and of other hands: every version's names, and every kind of damage."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from temper.errors import BadFileError
from temper.report.advise import advise_profile
from temper.report.summary import group_by, summarise, top_ops
from temper.report.writers import write_ops_csv, write_run
from temper.run.card_csv import read_ops_csv
from temper.run.opening import Profile

# Rows as a card of 2026 writes them (v2.1), made up for this test.
NEW = """\
OP CODE,OP TYPE,GLOBAL CALL COUNT,DEVICE ID,DEVICE ARCH,ATTRIBUTES,MATH FIDELITY,CORE COUNT,\
AVAILABLE WORKER CORE COUNT,HOST START TS,HOST DURATION [ns],OP TO OP LATENCY [ns],\
DEVICE KERNEL DURATION [ns],INPUT_0_W_PAD[LOGICAL],INPUT_0_Z_PAD[LOGICAL],\
INPUT_0_Y_PAD[LOGICAL],INPUT_0_X_PAD[LOGICAL],INPUT_0_DATATYPE,INPUT_0_MEMORY,\
INPUT_1_W_PAD[LOGICAL],INPUT_1_Z_PAD[LOGICAL],INPUT_1_Y_PAD[LOGICAL],INPUT_1_X_PAD[LOGICAL],\
INPUT_1_DATATYPE,INPUT_1_MEMORY
MatmulDeviceOperation,tt_dnn_device,1024,0,wormhole_b0,{},HiFi4,64,64,100,900,0,20000,\
1[1],1[1],32[1],4096[4096],BFLOAT16,DEV_1_L1_INTERLEAVED,\
1[1],1[1],4096[4096],512[512],BFLOAT16,DEV_1_DRAM_INTERLEAVED
BinaryNgDeviceOperation,tt_dnn_device,2048,0,wormhole_b0,{},HiFi3,64,64,200,900,9000,5000,\
1[1],1[1],32[17],512[500],BFLOAT16,DEV_1_DRAM_INTERLEAVED,,,,,,
"""


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "ops.csv"
    path.write_text(NEW)
    return path


def test_old_and_new_names_read_the_same(tmp_path: Path) -> None:
    run = samples.run(host_op=True)
    tables = []
    for newer in (False, True):
        write_ops_csv(run, tmp_path / f"{newer}.csv", newer=newer)
        tables.append(read_ops_csv(tmp_path / f"{newer}.csv"))
    for name in ("kernel_ns", "gap_ns", "cores", "flops", "dram_bytes"):
        np.testing.assert_array_equal(tables[0].number(name), tables[1].number(name))
    assert [tables[0].text("shape")[i] for i in range(5)] == [
        tables[1].text("shape")[i] for i in range(5)
    ]


def test_our_own_csv_says_modelled_and_a_cards_says_measured(tmp_path: Path, new: Path) -> None:
    write_ops_csv(samples.run(), tmp_path / "own.csv")
    assert read_ops_csv(tmp_path / "own.csv").basis == "modelled"
    assert read_ops_csv(new).basis == "measured"


def test_flops_traffic_and_bound_follow_from_the_columns(new: Path) -> None:
    table = read_ops_csv(new)
    assert table.number("flops")[0] == 2 * 32 * 4096 * 512
    # The weight alone lies in DRAM: 4 MiB in 20 µs is 210 GB/s, 73% of 288.
    assert table.number("dram_bytes")[0] == 4096 * 512 * 2
    assert table.text("bound")[0] == "dram"
    assert table.text("shape")[1] == "17x500"


def test_advice_from_columns_always_has_a_figure(new: Path) -> None:
    advice = advise_profile(Profile("x", read_ops_csv(new)))
    titles = [item.title for item in advice]
    assert any("trace" in title for title in titles)
    assert any("bfloat8_b" in title for title in titles)
    assert all(item.gain_ns > 0 and item.paste and item.why for item in advice)
    assert all("columns" in item.basis or "gain modelled" in item.basis for item in advice)
    gains = [item.gain_ns for item in advice]
    assert gains == sorted(gains, reverse=True)


def test_columns_in_any_order_with_strangers_between_them(new: Path, tmp_path: Path) -> None:
    import csv

    rows = list(csv.reader(NEW.splitlines()))
    order = np.random.default_rng(1).permutation(len(rows[0]))
    mixed = [["mine", *(row[i] for i in order), "yours"] for row in rows]
    with (tmp_path / "mixed.csv").open("w", newline="") as file:
        csv.writer(file).writerows(mixed)
    assert read_ops_csv(tmp_path / "mixed.csv").total("kernel_ns") == 25_000


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ("20000", "-5", "negative"),
        ("20000", "", "without a kernel duration"),
        ("20000", "NaN", "without a kernel duration"),
        ("20000", "inf", "without a kernel duration"),
        ("wormhole_b0", "quasar", "unknown DEVICE ARCH"),
        ("DEVICE KERNEL DURATION [ns]", "SOMETHING", "no DEVICE KERNEL DURATION"),
        ("DEVICE ARCH", "OTHER", "no DEVICE ARCH"),
        ("BFLOAT16,DEV_1_DRAM_INTERLEAVED,,,,,,\n", "BFLOAT16", "wrong number of cells"),
    ],
)
def test_damage_is_noted_and_the_rest_kept(
    tmp_path: Path, before: str, after: str, note: str
) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(NEW.replace(before, after))
    table = read_ops_csv(path)
    assert any(note in text for text in table.notes), table.notes
    assert table.rows >= 1
    summarise(Profile("x", table))
    advise_profile(Profile("x", table))


def test_a_packed_file_is_read_as_what_is_in_it(new: Path, tmp_path: Path) -> None:
    packed = tmp_path / "ops.csv.gz"
    packed.write_bytes(gzip.compress(NEW.encode()))
    found, plain = read_ops_csv(packed), read_ops_csv(new)
    np.testing.assert_array_equal(found.number("kernel_ns"), plain.number("kernel_ns"))
    assert found.notes == plain.notes
    packed.write_bytes(gzip.compress(NEW.encode())[:-20])
    with pytest.raises(BadFileError, match="damaged gzip"):
        read_ops_csv(packed)


def test_a_header_alone_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(NEW.splitlines()[0] + "\n")
    table = read_ops_csv(path)
    assert table.rows == 0
    assert "the file has no rows below its header" in table.notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "ops.csv"
    path.write_bytes(NEW.replace("{}", "{'é': 'ü'}").encode(encoding))
    assert read_ops_csv(path).total("kernel_ns") == 25_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b,c\n1,2,3\n", "no ops CSV"),
        (b"\x7fELF" + bytes(200), "no ops CSV"),
        (b"PK\x03\x04", "no ops CSV"),
    ],
)
def test_a_foreign_file_is_told_as_such(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "ops.csv"
    path.write_bytes(content)
    with pytest.raises(BadFileError, match=message):
        read_ops_csv(path)


def test_a_missing_file_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="cannot read"):
        read_ops_csv(tmp_path / "none.csv")


def test_a_header_without_rows_is_an_empty_profile(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(NEW.splitlines()[0] + "\n")
    profile = Profile("x", read_ops_csv(path))
    assert profile.table.rows == 0
    assert summarise(profile).ops == 0
    assert advise_profile(profile) == []


def test_an_unclosed_quote_costs_its_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    lines = NEW.splitlines()
    path.write_text("\n".join([*lines, lines[2].replace("{}", '"{')]) + "\n")
    assert read_ops_csv(path).total("kernel_ns") == 25_000


def test_tabs_and_semicolons_are_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(NEW.replace(",", "\t"))
    assert read_ops_csv(path).total("kernel_ns") == 25_000


def check_whole_report(path: Path) -> None:
    """Reading either works, and then everything works on it, or is told as a bad file."""
    try:
        profile = Profile("x", read_ops_csv(path))
    except BadFileError:
        return
    from temper.report.html import render
    from temper.report.report_data import report_data

    summarise(profile)
    advice = advise_profile(profile)
    for key in ("op", "module", "line", "bound"):
        group_by(profile.table.select(profile.table.is_device), key)
    top_ops(profile.table, 5)
    render(report_data(profile, advice))


CELLS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "NaN", "-1", "1e309", "32[1]", "[", "HiFi9", "DEV_", "(torch)", "signpost",
                     '"', "'", ";", "\x00", "\r", "0x10", "１２", "9" * 40, "1[", "BFLOAT16"]),
)  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_cell_may_hold_anything(tmp_path: Path, data: st.DataObject) -> None:
    import csv
    import io

    rows = list(csv.reader(NEW.splitlines()))
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.integers(0, len(rows) - 1))
        column = data.draw(st.integers(0, len(rows[0]) - 1))
        rows[row][column] = data.draw(CELLS)
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path = tmp_path / "ops.csv"
    path.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    check_whole_report(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, len(NEW)), junk=st.binary(max_size=40), at=st.integers(0, len(NEW)))
def test_any_bytes_may_be_cut_or_inserted(tmp_path: Path, cut: int, junk: bytes, at: int) -> None:
    raw = NEW.encode()
    path = tmp_path / "ops.csv"
    path.write_bytes((raw[:at] + junk + raw[at:])[:cut])
    check_whole_report(path)


def test_reading_a_csv_needs_no_pandas(tmp_path: Path) -> None:
    """Where it is installed, importing it takes longer than reading a hundred thousand rows."""
    write_run(samples.run(), tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from temper.run.opening import open_profile; "
        "open_profile(Path(sys.argv[1])); print(*{'pandas', 'numpy.ma'} & set(sys.modules))"
    )
    path = str(tmp_path / "run" / "ops_perf_results_v2.csv")
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
