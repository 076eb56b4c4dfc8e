"""How ttnn spreads a sliding window over the cores: scheme, shards, halo, blocks.

The rules are those of ttnn 0.81's automatic sharding, checked against the library on a mocked
device (benchmarks/memory_vs_ttnn.py): of height, block and width sharding the one with the
smallest sum of circular buffers, output shard and halo wins. A 1x1 convolution with stride 1 and
no padding is no window but a matmul (pointwise.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from temper.chips import Chip
from temper.program.op import Op
from temper.program.tensor import (
    TILE,
    TILE_BYTES,
    Memory,
    Sharding,
    TensorSpec,
    ceil_div,
    divisors,
    round_up,
)

# One stick of channels must be a whole NoC transfer: 16 B, eight bfloat16 values.
_CHANNEL_ALIGN = 8


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution or pool as geometry: what slides over what."""

    batch: int
    in_h: int
    in_w: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    in_channels: int
    out_channels: int
    groups: int = 1
    pool: bool = False
    spread: tuple[int, int] = (1, 1)  # steps between rows and columns that are not zeros

    @property
    def out_h(self) -> int:
        reach = self.dilation[0] * (self.kernel[0] - 1) + 1
        return (self.in_h + self.padding[0] + self.padding[1] - reach) // self.stride[0] + 1

    @property
    def out_w(self) -> int:
        reach = self.dilation[1] * (self.kernel[1] - 1) + 1
        return (self.in_w + self.padding[2] + self.padding[3] - reach) // self.stride[1] + 1

    @property
    def out_rows(self) -> int:
        return self.batch * self.out_h * self.out_w

    @property
    def in_rows(self) -> int:
        """Positions of the input as it is given, before zeros are spread between them."""
        down, across = self.spread
        return self.batch * ceil_div(self.in_h, down) * ceil_div(self.in_w, across)

    @property
    def is_matmul(self) -> bool:
        return (
            not self.pool
            and self.kernel == (1, 1)
            and self.stride == (1, 1)
            and not any(self.padding)
            and self.dilation == (1, 1)
        )

    @property
    def is_patches(self) -> bool:
        """A kernel as large as its stride: windows that meet and do not overlap."""
        return (
            not self.pool
            and self.kernel == self.stride
            and self.kernel != (1, 1)
            and self.dilation == (1, 1)
            and not any(self.padding)
            and self.in_h % self.kernel[0] == 0
            and self.in_w % self.kernel[1] == 0
        )

    @property
    def needs_halo(self) -> bool:
        """ttnn runs the halo op before every window that is not a matmul."""
        return not self.is_matmul


@dataclass(frozen=True, slots=True)
class ConvConfig:
    """One window on the cores. Rows are flat N*H*W positions, blocks are in tiles."""

    sharding: Sharding
    in_grid: tuple[int, int]
    halo_grid: tuple[int, int]
    out_grid: tuple[int, int]
    cores: int
    in_shard: tuple[int, int]
    halo_shard: tuple[int, int]
    out_shard: tuple[int, int]
    act_block_h: int
    act_block_w: int
    weight_block_w: int
    circular_bytes: int

    @property
    def in_memory(self) -> Memory:
        return Memory("sram", self.sharding, self.in_grid, self.in_shard)

    @property
    def halo_memory(self) -> Memory:
        return Memory("sram", self.sharding, self.halo_grid, self.halo_shard)

    @property
    def out_memory(self) -> Memory:
        return Memory("sram", self.sharding, self.out_grid, self.out_shard)


def window_of(op: Op) -> Window:
    """The geometry of a Conv2d, ConvTranspose2d or Pool2d op.

    A transposed convolution is what ttnn makes of it: the input spread with zeros, then a
    convolution with stride 1.
    """
    batch, in_h, in_w = op.attr("batch"), op.attr("in_h"), op.attr("in_w")
    kernel = (op.attr("kernel")[0], op.attr("kernel")[1])
    stride = (op.attr("stride")[0], op.attr("stride")[1])
    dilation = (op.attr("dilation")[0], op.attr("dilation")[1])
    top, bottom, left, right = op.attr("padding")
    spread = (1, 1)
    if op.kind == "ConvTranspose2d":
        extra_h, extra_w = op.attr("output_padding")
        reach_h, reach_w = dilation[0] * (kernel[0] - 1), dilation[1] * (kernel[1] - 1)
        in_h = (in_h - 1) * stride[0] + 1
        in_w = (in_w - 1) * stride[1] + 1
        top, bottom = reach_h - top, reach_h - bottom + extra_h
        left, right = reach_w - left, reach_w - right + extra_w
        stride, spread = (1, 1), stride
    pool = op.kind == "Pool2d"
    if pool and op.attr("ceil_mode"):
        # Windows that hang over the edge: ttnn pads the far ends as far as the last one reaches.
        bottom += _overhang(in_h, kernel[0], stride[0], (top, bottom), dilation[0])
        right += _overhang(in_w, kernel[1], stride[1], (left, right), dilation[1])
    channels = op.attr("channels") if pool else op.attr("in_channels")
    return Window(
        batch, in_h, in_w, kernel, stride, (top, bottom, left, right), dilation, channels,
        channels if pool else op.attr("out_channels"), 1 if pool else op.attr("groups"), pool,
        spread,
    )  # fmt: skip


def _overhang(size: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> int:
    """Rows past the far padding that the last window of ``ceil_mode`` reads; it starts inside."""
    span, padded = dilation * (kernel - 1) + 1, size + sum(padding)
    count = ceil_div(padded - span, stride) + 1
    if (count - 1) * stride >= size + padding[0]:
        count -= 1
    return max(0, (count - 1) * stride + span - padded)


def skips_halo(op: Op, before: TensorSpec, after: TensorSpec) -> bool:
    """Whether ttnn leaves out a halo: whole rows of channels, no padding, no tiles to undo."""
    whole = after.memory.sharding == "width" and not any(op.attr("padding"))
    return whole and before.layout == after.layout and before.memory == after.memory


def choose(
    window: Window,
    x: TensorSpec,
    out: TensorSpec,
    chip: Chip,
    *,
    weight_format: str = "bfloat16",
    bias: bool = False,
    fp32_acc: bool = False,
    act_block_h: int = 0,
    sharding: Sharding | None = None,
    split: tuple[int, int] | None = None,
) -> ConvConfig:
    """The config for one scheme, or for the scheme that ttnn would choose by itself.

    ``act_block_h`` in rows (0: the whole shard) trades circular buffers against passes. ``split``
    keeps the cores along rows and along channels of an input that is sharded already.
    """
    args = (
        x.format, x.layout, out.format, out.layout == "tile" or not window.pool, weight_format,
        bias, fp32_acc, act_block_h,
        split,
    )  # fmt: skip
    if sharding is not None:
        return _config(window, chip.grid, sharding, *args)
    best = _config(window, chip.grid, "height", *args)
    block = _config(window, chip.grid, "block", *args)
    if _total(block, x, out) < _total(best, x, out) and block.cores >= chip.grid[0]:
        best = block
    width = _config(window, chip.grid, "width", *args)
    if _total(width, x, out) < _total(best, x, out):
        best = width
    return best


def shard_bytes(shard: tuple[int, int], fmt: str) -> int:
    """Bytes of a row-major shard; block formats leave the halo as bfloat16."""
    return shard[0] * shard[1] * (4 if fmt == "float32" else 2)


def _total(config: ConvConfig, x: TensorSpec, out: TensorSpec) -> int:
    tiles = ceil_div(config.out_shard[0], TILE) * ceil_div(config.out_shard[1], TILE)
    return (
        config.circular_bytes
        + tiles * TILE_BYTES[out.format]
        + shard_bytes(config.halo_shard, x.format)
    )


@lru_cache(maxsize=4096)
def _config(
    w: Window,
    grid: tuple[int, int],
    sharding: Sharding,
    x_format: str,
    x_layout: str,
    out_format: str,
    out_tiled: bool,
    weight_format: str,
    bias: bool,
    fp32_acc: bool,
    act_block_h: int,
    split: tuple[int, int] | None,
) -> ConvConfig:
    cores = grid[0] * grid[1]
    row_unit = TILE if out_tiled else 1
    align = TILE if sharding == "width" or x_layout == "tile" else _CHANNEL_ALIGN
    if w.pool and x_layout != "tile":
        align = TILE // 2
    out_row_units = ceil_div(w.out_rows, row_unit)
    out_tiles_c = ceil_div(w.out_channels, TILE)
    rows_c, cores_in, cores_out = cores, 1, 1
    if sharding == "height":
        rows_c = even_split(out_row_units, cores)
        used = rows_c
    elif sharding == "block":
        rows_c = even_split(out_row_units, grid[1])
        cores_in = even_split(ceil_div(w.in_channels, align), grid[0])
        cores_out = cores_in if w.pool else even_split(out_tiles_c, grid[0])
        used = rows_c * max(cores_in, cores_out)
    else:
        rows_c = 1
        cores_in = even_split(ceil_div(w.in_channels, align), cores)
        cores_out = cores_in if w.pool else even_split(out_tiles_c, cores)
        used = max(cores_in, cores_out)

    if split is not None:
        rows_c, cores_in = split
        used = rows_c * max(cores_in, cores_out)
    in_c = round_up(w.in_channels, cores_in * align) // cores_in
    unit = TILE if x_layout == "tile" else row_unit if sharding != "width" else 1
    in_rows = round_up(ceil_div(w.in_rows, rows_c), unit)
    out_rows = ceil_div(out_row_units, rows_c) * row_unit
    out_c = in_c if w.pool else ceil_div(out_tiles_c, cores_out) * TILE
    halo_rows = _halo_rows(w, out_rows, rows_c)

    kernel_w = w.kernel[1] * (w.kernel[0] if sharding == "width" else 1)
    block_w = ceil_div(in_c * kernel_w, TILE)
    block_h = ceil_div(out_rows, TILE)
    if act_block_h:
        # Width shards: ttnn looks for the block in the whole tiles of rows, without a rest.
        whole = w.out_rows // TILE if sharding == "width" else block_h
        fitting = [d for d in divisors(block_h) if whole % d == 0]
        block_h = max(d for d in fitting if d * TILE <= max(act_block_h, TILE))
    weight_w = ceil_div(out_c, TILE)
    circular = pool_bytes(w, in_c)
    if not w.pool:
        out_h = ceil_div(out_rows, TILE)
        circular = _circular_bytes(
            block_h, block_w, weight_w, out_h, x_format, out_format, weight_format, bias, fp32_acc,
        )  # fmt: skip
        act_tile = 4096 if x_format == "float32" else 2048
        if sharding == "width":  # rows of activations before they are tilized
            circular += 2 * block_w * act_tile
            if used == 1:  # nobody to send the tilized block to
                circular -= block_h * block_w * act_tile
        elif sharding == "height" and block_h < out_h:  # the weights of all rows of the window
            circular += (w.kernel[0] - 1) * block_w * weight_w * TILE_BYTES[weight_format]
    # Only cores that hold a shard count, so that equal shards are equal wherever they come from.
    rows_in, rows_out = ceil_div(w.in_rows, in_rows), ceil_div(w.out_rows, out_rows)
    return ConvConfig(
        sharding,
        _grid_of(sharding, grid, rows_in, cores_in),
        _grid_of(sharding, grid, rows_out, cores_in),
        _grid_of(sharding, grid, rows_out, cores_out),
        used, (in_rows, in_c), (halo_rows, in_c), (out_rows, out_c), block_h, block_w, weight_w,
        circular,
    )  # fmt: skip


# Most tiles of channels and rows of a window that a pool reduces at a time.
_POOL_TILES, _POOL_ROWS = 8, 32


def pool_bytes(window: Window, channels: int) -> int:
    """Circular buffers of a pool over so many channels of a core: scalar, filler, two windows."""
    rows = min(window.kernel[0] * window.kernel[1], _POOL_ROWS)
    wide = min(ceil_div(channels, TILE), _POOL_TILES) * TILE
    page = round_up(wide * rows, TILE * TILE) * 2
    return 3 * 2048 + 2 * 2 * page


def _circular_bytes(
    block_h: int, block_w: int, weight_w: int, out_h: int, x_format: str, out_format: str,
    weight_format: str, bias: bool, fp32_acc: bool,
) -> int:  # fmt: skip
    """Weights, activations before and after tilizing, bias, and sums that are not the output."""
    act_tile = 4096 if x_format == "float32" else 2048
    total = block_w * weight_w * TILE_BYTES[weight_format]
    total += block_h * block_w * (act_tile + act_tile)
    total += weight_w * TILE_BYTES[weight_format] if bias else 0
    partial_tile = 4096 if fp32_acc else 2048
    if partial_tile != TILE_BYTES[out_format]:  # otherwise the sums live in the output shard
        total += out_h * weight_w * partial_tile
    return total + 64


@lru_cache(maxsize=4096)
def _halo_rows(w: Window, out_rows: int, shards: int) -> int:
    """The most input positions, padding included, that one shard of outputs looks at."""
    padded_w = w.in_w + w.padding[2] + w.padding[3]
    padded_image = (w.in_h + w.padding[0] + w.padding[1]) * padded_w
    reach = (w.kernel[0] - 1) * w.dilation[0] * padded_w + (w.kernel[1] - 1) * w.dilation[1]

    def first(row: int) -> int:
        image, rest = divmod(row, w.out_h * w.out_w)
        y, x = divmod(rest, w.out_w)
        return image * padded_image + y * w.stride[0] * padded_w + x * w.stride[1]

    longest = 0
    for shard in range(shards):
        start = shard * out_rows
        if start >= w.out_rows:
            break
        last = min(start + out_rows, w.out_rows) - 1
        longest = max(longest, first(last) + reach - first(start) + 1)
    return longest


def even_split(count: int, most: int) -> int:
    """The largest number of cores, at most ``most``, none of which is left without work."""
    cores = most
    while cores > 1:
        padded = round_up(count, cores)
        if padded - count < padded // cores:
            break
        cores -= 1
    return cores


def _grid_of(sharding: Sharding, grid: tuple[int, int], rows: int, columns: int) -> tuple[int, int]:
    """The smallest rectangle of cores from the corner that holds the shards."""
    if sharding == "block":
        return columns, rows
    used = rows if sharding == "height" else columns
    return (used, 1) if used <= grid[0] else (grid[0], ceil_div(used, grid[0]))
