// How a (batch, rows, columns) array falls into 32x32 tiles, and tiles into runs of neighbours.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace temper {

// Neighbouring tiles of one tile row that are worked on together.
struct Run {
    std::size_t first_tile, tiles;
    std::size_t first_element;
    std::size_t rows, columns;  // real ones, without padding
};

struct Tiling {
    static constexpr std::size_t kRun = 16;
    std::size_t batch, rows, columns;
    std::size_t tile_rows, tile_columns, runs_per_row;

    Tiling(std::size_t batch_, std::size_t rows_, std::size_t columns_)
        : batch(batch_), rows(rows_), columns(columns_), tile_rows((rows_ + 31) / 32),
          tile_columns((columns_ + 31) / 32), runs_per_row((tile_columns + kRun - 1) / kRun) {}

    std::size_t elements() const { return batch * rows * columns; }
    std::size_t runs() const { return batch * tile_rows * runs_per_row; }

    Run run(std::size_t index) const {
        const std::size_t column = index % runs_per_row * kRun;
        const std::size_t tile_row = index / runs_per_row;  // over all batches
        const std::size_t row = tile_row % tile_rows * 32;
        const std::size_t left = columns - column * 32;
        const std::size_t tiles = tile_columns - column < kRun ? tile_columns - column : kRun;
        return {tile_row * tile_columns + column, tiles,
                (tile_row / tile_rows * rows + row) * columns + column * 32,
                rows - row < 32 ? rows - row : 32, left < tiles * 32 ? left : tiles * 32};
    }
};

// Moves elements of any size between row-major and tile order; the padding of tiles is zero.
template <bool ToTiles>
void move_runs(const std::uint8_t *src, std::uint8_t *dst, const Tiling &tiling, std::size_t size,
               std::size_t begin, std::size_t end) {
    for (std::size_t index = begin; index < end; ++index) {
        const Run at = tiling.run(index);
        const std::size_t tiles = at.first_tile * 1024 * size;
        const std::size_t corner = at.first_element * size;
        if (ToTiles && (at.rows < 32 || at.columns < at.tiles * 32))
            std::memset(dst + tiles, 0, at.tiles * 1024 * size);
        for (std::size_t row = 0; row < at.rows; ++row) {
            for (std::size_t column = 0; column < at.columns; column += 16) {
                const std::size_t rest = at.columns - column < 16 ? at.columns - column : 16;
                const std::size_t group = (row / 16) * 32 + row % 16 + column / 16 % 2 * 16;
                const std::size_t in_tiles = tiles + (column / 32 * 1024 + group * 16) * size;
                const std::size_t in_rows = corner + (row * tiling.columns + column) * size;
                if (ToTiles)
                    std::memcpy(dst + in_tiles, src + in_rows, rest * size);
                else
                    std::memcpy(dst + in_rows, src + in_tiles, rest * size);
            }
        }
    }
}

}  // namespace temper
