"""Advice over boards, and comparisons of two settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import no_batch

from temper.cli import main
from temper.tuning.advise import advise
from temper.tuning.advise_page import write
from temper.tuning.rung import Rung


def test_each_board_gets_its_best_setting_limits_and_next_steps(tmp_path: Path) -> None:
    advice = advise(no_batch, ["n150", "p150"])
    assert [board.chip for board in advice.boards] == ["n150", "p150"]
    assert "is the fastest" in advice.choice
    for board in advice.boards:
        assert board.best.pcc is not None
        assert board.best.pcc >= 0.99
        assert sum(board.limits.values()) == pytest.approx(1.0)
        assert 0 < board.roofline.tflops <= board.roofline.roof_tflops
        assert board.next_steps
        assert not board.ladder.buffers
    # One linear layer of 64 x 64 on 4 rows: 2 * 4 * 64 * 64 FLOP.
    assert advice.boards[0].roofline.flop == 2 * 4 * 64 * 64
    page = tmp_path / "advice.html"
    write(advice, page)
    text = page.read_text()
    assert text.count("<svg") == 6
    assert "roofline" in text
    assert "http" not in text.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("https://matplotlib.org", "").replace("http://creativecommons.org", "")


def test_a_board_that_was_not_tried_to_the_end_loses_no_race() -> None:
    def stop(chip: str, rung: Rung) -> None:
        if chip == "p150":
            raise KeyboardInterrupt

    advice = advise(no_batch, ["n150", "p150"], on_rung=stop)
    assert advice.interrupted
    assert "p150 could not be tried to the end" in advice.choice
    assert "is the fastest:" not in advice.choice


class _Keeping(torch.nn.Module):
    """Keeps what it has seen, as a cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
        self.register_buffer("seen", torch.zeros(4, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[1:3] = self.inner(x)[1:3]
        return self.seen * 2


def test_buffers_that_a_model_changes_are_told_of() -> None:
    advice = advise(lambda: (_Keeping(), (torch.randn(4, 64),)), ["n150"])
    [board] = advice.boards
    [told] = [text for text in board.next_steps if "changes 1 buffer at every call" in text]
    assert told in board.ladder.notes


def _said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(args))
    out, err = capsys.readouterr()
    assert stopped.value.code in (0, 2), err
    return out + (err if stopped.value.code else "")


def test_two_settings_are_told_apart_and_equal_ones_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = json.loads(
        _said(capsys, "compare", "tiny:make", "-a", "enable_trace=false", "-b", "batch=32",
              "--json", "-q")
    )  # fmt: skip
    assert found["difference"]["verdict"] == "faster"
    rate = found["before"]["samples_per_s"] / found["after"]["samples_per_s"]
    assert found["difference"]["value"] == pytest.approx(rate)
    assert found["after"]["batch"] == 32
    assert found["before"]["pcc"] > 0.999
    assert "A and B are the same" in _said(capsys, "compare", "tiny:make")
