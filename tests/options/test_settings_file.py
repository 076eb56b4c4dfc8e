"""Settings that a user keeps in temper.toml or pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from temper.cli import main
from temper.errors import BadFileError, UsageError
from temper.options import resolve

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")


def test_the_nearest_file_decides_and_each_value_tells_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.temper]\nchip = "p150"\nlevel = 1\n')
    (inner / "pyproject.toml").write_text('[project]\nname = "other"\n')
    monkeypatch.chdir(inner)
    monkeypatch.delenv("TEMPER_CHIP", raising=False)
    found = resolve()
    assert (found["chip"], found["optimization_level"]) == ("p150", 1)
    assert found.origin("chip") == str(tmp_path / "pyproject.toml")
    assert found["enable_fusing"] is True  # level 1's own default follows
    monkeypatch.setenv("TEMPER_CHIP", "n300")
    assert resolve()["chip"] == "n300"
    assert resolve({"chip": "e75"})["chip"] == "e75"
    (inner / "temper.toml").write_text('chip = "p100"\n')
    monkeypatch.delenv("TEMPER_CHIP")
    assert resolve()["chip"] == "p100"
    assert resolve()["optimization_level"] == 0
    with pytest.raises(SystemExit):
        main(["options", "chip"])
    shown = capsys.readouterr().out
    assert f"chip = p100  from {inner / 'temper.toml'}\n" in shown
    with pytest.raises(SystemExit):
        main(["options", "trace"])
    assert "enable_trace = false  from default\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [("chp = 'n150'", "unknown compile option 'chp'"), ("level = 9", "optimization_level"),
     ("chip = ", "no TOML")],
)  # fmt: skip
def test_a_wrong_setting_names_the_file(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temper.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, BadFileError), match=says) as caught:
        resolve()
    assert "temper.toml" in str(caught.value)
