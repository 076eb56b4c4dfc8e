// Rounding, block-float quantising and tile packing on raw float32 buffers.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>

#include "parallel.hpp"
#include "tiling.hpp"

#if defined(__x86_64__) || defined(__i386__)
#define TEMPER_X86 1
#include <immintrin.h>
#endif

namespace nb = nanobind;

namespace temper {
namespace portable {
#include "format_group_portable.hpp"
#include "format_loops.hpp"
}  // namespace portable

#ifdef TEMPER_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
#include "format_group_avx2.hpp"
#include "format_loops.hpp"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace avx2 = portable;
#endif

namespace {

// The codes of FORMAT_CODES in kernels/codes.py.
enum Format : int { kFloat32, kBfloat16, kBfloat8, kBfloat4, kBfloat2, kTf32 };

// Larger than the last cache: writing past the caches then saves reading the destination first.
constexpr std::size_t kPastCachesElements = std::size_t{8} << 20;

bool detect_avx2() {
#ifdef TEMPER_X86
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}
bool use_avx2 = detect_avx2();

#ifdef TEMPER_X86
#define TEMPER_PICK(call) (use_avx2 ? avx2::call : portable::call)
#else
#define TEMPER_PICK(call) (portable::call)
#endif

template <class Portable, class Fast>
void flat(const Portable &portable_op, const Fast &fast_op, const float *src, float *dst,
          std::size_t count) {
    const bool past_caches = src != dst && count >= kPastCachesElements;
    parallel_for((count + 15) / 16, count, [&](std::size_t begin, std::size_t end) {
        (void)fast_op;
#ifdef TEMPER_X86
        if (use_avx2) return avx2::map_flat(fast_op, src, dst, begin, end, count, past_caches);
#endif
        portable::map_flat(portable_op, src, dst, begin, end, count, past_caches);
    });
}

template <class Portable, class Fast>
void rows(const Portable &portable_op, const Fast &fast_op, const float *src, float *dst,
          std::size_t count, std::size_t columns) {
    if (columns % 16 == 0) return flat(portable_op, fast_op, src, dst, count * columns);
    parallel_for(count, count * columns, [&](std::size_t begin, std::size_t end) {
        (void)fast_op;
#ifdef TEMPER_X86
        if (use_avx2) return avx2::map_rows(fast_op, src, dst, begin, end, columns);
#endif
        portable::map_rows(portable_op, src, dst, begin, end, columns);
    });
}

void round_bf16(const float *src, float *dst, std::size_t count) {
    flat(portable::RoundBf16{}, avx2::RoundBf16{}, src, dst, count);
}

void quantize(const float *src, float *dst, std::size_t count, std::size_t columns, int format) {
    switch (format) {
        case kFloat32:
            if (src != dst) std::memmove(dst, src, count * columns * sizeof(float));
            return;
        case kBfloat16:
            return round_bf16(src, dst, count * columns);
        case kBfloat8:
            return rows(portable::Quantize<7>{}, avx2::Quantize<7>{}, src, dst, count, columns);
        case kBfloat4:
            return rows(portable::Quantize<3>{}, avx2::Quantize<3>{}, src, dst, count, columns);
        case kBfloat2:
            return rows(portable::Quantize<1>{}, avx2::Quantize<1>{}, src, dst, count, columns);
        case kTf32:
            return flat(portable::TruncateTf32{}, avx2::TruncateTf32{}, src, dst, count * columns);
        default:
            throw nb::value_error("unknown format code");
    }
}

void mask_bits(const float *src, float *dst, std::size_t count, std::uint32_t mask) {
    flat(portable::MaskBits{mask}, avx2::MaskBits{mask}, src, dst, count);
}

void add_round_bf16(float *sum, const float *part, std::size_t count) {
    parallel_for((count + 15) / 16, count, [&](std::size_t begin, std::size_t end) {
        TEMPER_PICK(add_round_bf16(sum, part, begin, end, count));
    });
}

template <class Portable, class Fast>
void pack_with(const float *src, std::uint8_t *dst, const Tiling &tiling) {
    parallel_for(tiling.runs(), tiling.elements(), [&](std::size_t begin, std::size_t end) {
#ifdef TEMPER_X86
        if (use_avx2) return avx2::pack_runs<Fast>(src, dst, tiling, begin, end);
#endif
        portable::pack_runs<Portable>(src, dst, tiling, begin, end);
    });
}

template <class Portable, class Fast>
void unpack_with(const std::uint8_t *src, float *dst, const Tiling &tiling) {
    const bool past_caches = tiling.elements() >= kPastCachesElements;
    parallel_for(tiling.runs(), tiling.elements(), [&](std::size_t begin, std::size_t end) {
#ifdef TEMPER_X86
        if (use_avx2) return avx2::unpack_runs<Fast>(src, dst, tiling, begin, end, past_caches);
#endif
        portable::unpack_runs<Portable>(src, dst, tiling, begin, end, past_caches);
    });
}

template <bool ToTiles>
void move(const std::uint8_t *src, std::uint8_t *dst, const Tiling &tiling, std::size_t size) {
    parallel_for(tiling.runs(), tiling.elements(), [&](std::size_t begin, std::size_t end) {
        move_runs<ToTiles>(src, dst, tiling, size, begin, end);
    });
}

void pack(const float *src, std::uint8_t *dst, const Tiling &tiling, int format) {
    using namespace portable;
    switch (format) {
        case kFloat32:
            return move<true>(reinterpret_cast<const std::uint8_t *>(src), dst, tiling, 4);
        case kBfloat16:
            return pack_with<Bf16Codec, avx2::Bf16Codec>(src, dst, tiling);
        case kBfloat8:
            return pack_with<BlockCodec<7>, avx2::BlockCodec<7>>(src, dst, tiling);
        case kBfloat4:
            return pack_with<BlockCodec<3>, avx2::BlockCodec<3>>(src, dst, tiling);
        case kBfloat2:
            return pack_with<BlockCodec<1>, avx2::BlockCodec<1>>(src, dst, tiling);
        default:
            throw nb::value_error("unknown format code");
    }
}

void unpack(const std::uint8_t *src, float *dst, const Tiling &tiling, int format) {
    using namespace portable;
    switch (format) {
        case kFloat32:
            return move<false>(src, reinterpret_cast<std::uint8_t *>(dst), tiling, 4);
        case kBfloat16:
            return unpack_with<Bf16Codec, avx2::Bf16Codec>(src, dst, tiling);
        case kBfloat8:
            return unpack_with<BlockCodec<7>, avx2::BlockCodec<7>>(src, dst, tiling);
        case kBfloat4:
            return unpack_with<BlockCodec<3>, avx2::BlockCodec<3>>(src, dst, tiling);
        case kBfloat2:
            return unpack_with<BlockCodec<1>, avx2::BlockCodec<1>>(src, dst, tiling);
        default:
            throw nb::value_error("unknown format code");
    }
}

}  // namespace
}  // namespace temper

namespace {

template <class T>
T *pointer(std::uintptr_t address) {
    return reinterpret_cast<T *>(address);
}

using Size = std::size_t;
using Address = std::uintptr_t;
using Released = nb::call_guard<nb::gil_scoped_release>;

}  // namespace

// Addresses are the caller's promise: contiguous buffers of the stated size. The checked forms are
// in formats/.
void bind_formats(nb::module_ &m) {
    m.def("has_avx2", [] { return temper::use_avx2; });
    m.def("force_portable", [](bool on) { temper::use_avx2 = !on && temper::detect_avx2(); });
    m.def("round_bf16_ptr", [](Address data, Size count) {
        temper::round_bf16(pointer<float>(data), pointer<float>(data), count);
    }, Released());
    m.def("round_bf16_to_ptr", [](Address src, Address dst, Size count) {
        temper::round_bf16(pointer<const float>(src), pointer<float>(dst), count);
    }, Released());
    m.def("quantize_ptr", [](Address data, Size rows, Size columns, int format) {
        temper::quantize(pointer<float>(data), pointer<float>(data), rows, columns, format);
    }, Released());
    m.def("quantize_to_ptr", [](Address src, Address dst, Size rows, Size columns, int format) {
        temper::quantize(pointer<const float>(src), pointer<float>(dst), rows, columns, format);
    }, Released());
    m.def("mask_bits_ptr", [](Address src, Address dst, Size count, std::uint32_t mask) {
        temper::mask_bits(pointer<const float>(src), pointer<float>(dst), count, mask);
    }, Released());
    m.def("add_round_bf16_ptr", [](Address sum, Address part, Size count) {
        temper::add_round_bf16(pointer<float>(sum), pointer<const float>(part), count);
    }, Released());
    m.def("pack_ptr", [](Address src, Address dst, Size batch, Size rows, Size columns, int format) {
        temper::pack(pointer<const float>(src), pointer<std::uint8_t>(dst),
                     temper::Tiling(batch, rows, columns), format);
    }, Released());
    m.def("unpack_ptr", [](Address src, Address dst, Size batch, Size rows, Size columns, int format) {
        temper::unpack(pointer<const std::uint8_t>(src), pointer<float>(dst),
                       temper::Tiling(batch, rows, columns), format);
    }, Released());
    m.def("tilize_ptr", [](Address src, Address dst, Size batch, Size rows, Size columns, Size size) {
        temper::move<true>(pointer<const std::uint8_t>(src), pointer<std::uint8_t>(dst),
                           temper::Tiling(batch, rows, columns), size);
    }, Released());
    m.def("untilize_ptr", [](Address src, Address dst, Size batch, Size rows, Size columns, Size size) {
        temper::move<false>(pointer<const std::uint8_t>(src), pointer<std::uint8_t>(dst),
                            temper::Tiling(batch, rows, columns), size);
    }, Released());
}
