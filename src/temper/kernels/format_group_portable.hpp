// One group of 16 float32 values in plain C++: the same bits as the AVX2 form, on any machine.
// Included inside a namespace; `Block` and the functions below are what format_loops.hpp needs.

struct Block {
    std::uint32_t lane[16];
};

inline Block load(const float *src) {
    Block block;
    std::memcpy(block.lane, src, sizeof block.lane);
    return block;
}

inline Block load_part(const float *src, std::size_t count) {
    Block block = {};
    std::memcpy(block.lane, src, count * sizeof(float));
    return block;
}

inline void store(float *dst, const Block &block) { std::memcpy(dst, block.lane, sizeof block.lane); }

inline void store_part(float *dst, const Block &block, std::size_t count) {
    std::memcpy(dst, block.lane, count * sizeof(float));
}

inline bool can_stream(const float *) { return false; }
inline void stream(float *dst, const Block &block) { store(dst, block); }
inline void stream_end() {}

inline Block round_bf16(Block block) {
    for (std::uint32_t &x : block.lane) {
        const bool nan = (x & 0x7FFFFFFFu) > 0x7F800000u;
        const std::uint32_t rounded = (x + 0x7FFFu + ((x >> 16) & 1u)) & 0xFFFF0000u;
        x = nan ? 0x7FC00000u : rounded;
    }
    return block;
}

inline Block truncate_tf32(Block block) {
    for (std::uint32_t &x : block.lane)
        x = (x & 0x7F800000u) ? (x & 0xFFFFE000u) : (x & 0x80000000u);
    return block;
}

inline Block mask_bits(Block block, std::uint32_t mask) {
    for (std::uint32_t &x : block.lane) x &= mask;
    return block;
}

inline Block add(Block a, const Block &b) {
    for (int i = 0; i < 16; ++i) {
        float x, y;
        std::memcpy(&x, &a.lane[i], 4);
        std::memcpy(&y, &b.lane[i], 4);
        x += y;
        std::memcpy(&a.lane[i], &x, 4);
    }
    return a;
}

inline std::uint32_t shared_exponent(const Block &block) {
    std::uint32_t largest = 0;
    for (const std::uint32_t x : block.lane) {
        const std::uint32_t exponent = (x >> 23) & 0xFFu;
        largest = exponent > largest ? exponent : largest;
    }
    return largest;
}

// Magnitude of one value under the shared exponent. Bits shifted out first are lost, so they do
// not break ties; the rest is rounded to nearest, ties to even, and saturates.
template <int Bits>
inline std::uint32_t magnitude(std::uint32_t x, std::uint32_t shared) {
    constexpr int kShift = 24 - Bits;
    constexpr std::uint32_t kMost = (1u << Bits) - 1u;
    const std::uint32_t exponent = (x >> 23) & 0xFFu;
    const std::uint32_t down = shared - exponent;
    if (exponent == 0 || down > 23) return 0;
    const std::uint32_t mantissa = ((x & 0x7FFFFFu) | 0x800000u) >> down;
    const std::uint32_t odd = (mantissa >> kShift) & 1u;
    const std::uint32_t rounded = (mantissa + odd + ((1u << (kShift - 1)) - 1u)) >> kShift;
    return rounded < kMost ? rounded : kMost;
}

// The float32 bits of a code; results below the normal range are +0, never a denormal.
template <int Bits>
inline std::uint32_t value_bits(std::uint32_t sign, std::uint32_t size, std::uint32_t shared) {
    if (size == 0) return 0;
    const float whole = static_cast<float>(size);
    std::uint32_t bits;
    std::memcpy(&bits, &whole, 4);
    const std::int32_t moved = static_cast<std::int32_t>(bits) +
                               (static_cast<std::int32_t>(shared) - (127 + Bits - 1)) * (1 << 23);
    return moved < 0x00800000 ? 0 : (static_cast<std::uint32_t>(moved) | (sign << 31));
}

template <int Bits>
inline Block quantize(Block block) {
    const std::uint32_t shared = shared_exponent(block);
    for (std::uint32_t &x : block.lane)
        x = value_bits<Bits>(x >> 31, magnitude<Bits>(x, shared), shared);
    return block;
}

template <int Bits>
inline void encode(const Block &block, std::uint8_t *exponent, std::uint8_t *codes) {
    constexpr int kWidth = Bits + 1;
    constexpr int kPerByte = 8 / kWidth;
    const std::uint32_t shared = shared_exponent(block);
    *exponent = static_cast<std::uint8_t>(shared);
    for (int byte = 0; byte < 16 / kPerByte; ++byte) {
        std::uint32_t packed = 0;
        for (int i = 0; i < kPerByte; ++i) {
            const std::uint32_t x = block.lane[byte * kPerByte + i];
            const std::uint32_t size = magnitude<Bits>(x, shared);
            const std::uint32_t code = size ? (size | ((x >> 31) << Bits)) : 0;
            packed |= code << (i * kWidth);
        }
        codes[byte] = static_cast<std::uint8_t>(packed);
    }
}

template <int Bits>
inline Block decode(std::uint8_t exponent, const std::uint8_t *codes) {
    constexpr int kWidth = Bits + 1;
    constexpr int kPerByte = 8 / kWidth;
    Block block;
    for (int i = 0; i < 16; ++i) {
        const std::uint32_t code = codes[i / kPerByte] >> ((i % kPerByte) * kWidth);
        const std::uint32_t size = code & ((1u << Bits) - 1u);
        block.lane[i] = value_bits<Bits>((code >> Bits) & 1u, size, exponent);
    }
    return block;
}

inline void narrow_bf16(const Block &block, std::uint8_t *dst) {
    const Block rounded = round_bf16(block);
    std::uint16_t half[16];
    for (int i = 0; i < 16; ++i) half[i] = static_cast<std::uint16_t>(rounded.lane[i] >> 16);
    std::memcpy(dst, half, sizeof half);
}

inline Block widen_bf16(const std::uint8_t *src) {
    std::uint16_t half[16];
    std::memcpy(half, src, sizeof half);
    Block block;
    for (int i = 0; i < 16; ++i) block.lane[i] = static_cast<std::uint32_t>(half[i]) << 16;
    return block;
}
