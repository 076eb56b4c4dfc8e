// Images on their way to the chip: channels last, steps of a stride moved into channels.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "parallel.hpp"

namespace nb = nanobind;

namespace temper {

// An image of (channels, height, width) becomes rows x columns blocks of (down, across, deep)
// values; `top` and `left` rows and columns of zeros come before it, `deep - channels` zeros after.
struct Fold {
    std::size_t images, channels, height, width;
    std::size_t down, across, top, left;
    std::size_t rows, columns, deep;
};

// One row of blocks: its values lie within a few kB, so that scattered writes stay in the cache.
template <class T>
void fold_row(const T *image, T *out, const Fold &f, std::size_t row) {
    const std::size_t block = f.down * f.across * f.deep;
    std::memset(out, 0, f.columns * block * sizeof(T));
    for (std::size_t y = 0; y < f.down; ++y) {
        const std::size_t from = row * f.down + y;
        if (from < f.top || from - f.top >= f.height) continue;
        for (std::size_t channel = 0; channel < f.channels; ++channel) {
            const T *line = image + (channel * f.height + (from - f.top)) * f.width;
            for (std::size_t x = 0; x < f.across; ++x) {
                // The first pixel that falls on place x of a block.
                const std::size_t first = (x + f.across - f.left % f.across) % f.across;
                T *to = out + ((first + f.left) / f.across) * block +
                        (y * f.across + x) * f.deep + channel;
                for (std::size_t at = first; at < f.width; at += f.across, to += block)
                    *to = line[at];
            }
        }
    }
}

template <class T>
void fold(const T *src, T *dst, const Fold &f) {
    const std::size_t image = f.channels * f.height * f.width;
    const std::size_t row = f.columns * f.down * f.across * f.deep;
    parallel_for(f.images * f.rows, f.images * image, [&](std::size_t begin, std::size_t end) {
        for (std::size_t index = begin; index < end; ++index)
            fold_row(src + index / f.rows * image, dst + index * row, f, index % f.rows);
    });
}

}  // namespace temper

// Elements of 2 or 4 bytes; the caller promises contiguous buffers of the stated sizes.
void bind_fold(nb::module_ &m) {
    using Size = std::size_t;
    m.def("fold_ptr", [](std::uintptr_t src, std::uintptr_t dst, Size size, Size images,
                         Size channels, Size height, Size width, Size down, Size across, Size top,
                         Size left, Size rows, Size columns, Size deep) {
        const temper::Fold f{images, channels, height, width, down, across,
                             top,    left,     rows,   columns, deep};
        if (size == 2)
            temper::fold(reinterpret_cast<const std::uint16_t *>(src),
                         reinterpret_cast<std::uint16_t *>(dst), f);
        else
            temper::fold(reinterpret_cast<const std::uint32_t *>(src),
                         reinterpret_cast<std::uint32_t *>(dst), f);
    }, nb::call_guard<nb::gil_scoped_release>());
}
