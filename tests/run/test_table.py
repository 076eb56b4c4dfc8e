"""Text columns folded into one."""

from __future__ import annotations

import numpy as np
import pytest

from temper.run.table import Text, combined


@pytest.mark.parametrize("distinct", [1, 3, 900])  # looked up, and sorted where that is too wide
def test_rows_with_the_same_words_are_one_combination(distinct: int) -> None:
    dice = np.random.default_rng(distinct)
    columns = [
        Text(dice.integers(0, distinct, 500), [f"{letter}{i}" for i in range(distinct)])
        for letter in "abc"
    ]
    codes, first = combined(columns)
    words = [tuple(column[row] for column in columns) for row in range(500)]
    assert len(first) == len(set(words))
    assert [words.index(words[row]) for row in range(500)] == first[codes].tolist()


def test_no_rows_are_no_combination() -> None:
    codes, first = combined([Text(np.zeros(0, np.int32), ["a", "b"])])
    assert len(codes) == len(first) == 0
