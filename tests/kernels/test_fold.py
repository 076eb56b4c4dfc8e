"""The fold of images: native and pure kernels give what numpy's own order of dimensions gives."""

from __future__ import annotations

import numpy as np
import pytest

from temper import kernels
from temper.kernels import pure

# images, channels, height, width; step; top, bottom, left, right; channels of a block
CASES = [
    ((2, 3, 9, 10), (2, 2), (3, 0, 1, 3), 4),
    ((1, 1, 8, 8), (1, 1), (0, 0, 0, 0), 8),
    ((3, 3, 8, 12), (4, 4), (0, 0, 0, 0), 3),
    ((2, 5, 7, 6), (3, 2), (1, 1, 0, 2), 5),
]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
@pytest.mark.parametrize("fold", [kernels.fold_ptr, pure.fold_ptr], ids=["chosen", "pure"])
def test_a_fold_is_the_padded_image_in_another_order(fold, case, kind):
    shape, (down, across), (top, bottom, left, right), deep = case
    n, c, height, width = shape
    x = np.arange(1, n * c * height * width + 1, dtype=kind).reshape(shape)
    padded = np.pad(x, ((0, 0), (0, deep - c), (top, bottom), (left, right)))
    rows, columns = padded.shape[2] // down, padded.shape[3] // across
    blocks = padded.reshape(n, deep, rows, down, columns, across)
    wanted = np.ascontiguousarray(blocks.transpose(0, 2, 4, 3, 5, 1))
    out = np.full(wanted.shape, 7, kind)
    fold(x.ctypes.data, out.ctypes.data, x.itemsize, n, c, height, width, down, across, top, left,
         rows, columns, deep)  # fmt: skip
    assert np.array_equal(out, wanted)
