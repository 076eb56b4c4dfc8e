// Loops over groups and tiles; included once in each namespace that defines Block and its functions.

struct RoundBf16 {
    Block operator()(const Block &block) const { return round_bf16(block); }
};
struct TruncateTf32 {
    Block operator()(const Block &block) const { return truncate_tf32(block); }
};
struct MaskBits {
    std::uint32_t mask;
    Block operator()(const Block &block) const { return mask_bits(block, mask); }
};
template <int Bits>
struct Quantize {
    Block operator()(const Block &block) const { return quantize<Bits>(block); }
};

// Tile codecs: how one group of 16 is written to and read from the bytes of a tile.
template <int Bits>
struct BlockCodec {
    static constexpr std::size_t kGroupBytes = 2 * (Bits + 1);
    static constexpr std::size_t kExponentBytes = 64;
    static void encode_group(const Block &block, std::uint8_t *exponent, std::uint8_t *codes) {
        encode<Bits>(block, exponent, codes);
    }
    static Block decode_group(const std::uint8_t *exponent, const std::uint8_t *codes) {
        return decode<Bits>(*exponent, codes);
    }
};
struct Bf16Codec {
    static constexpr std::size_t kGroupBytes = 32;
    static constexpr std::size_t kExponentBytes = 0;
    static void encode_group(const Block &block, std::uint8_t *, std::uint8_t *codes) {
        narrow_bf16(block, codes);
    }
    static Block decode_group(const std::uint8_t *, const std::uint8_t *codes) {
        return widen_bf16(codes);
    }
};

// Blocks [begin, end) of 16 values; the last block of the array may be short. src may equal dst.
template <class Op>
void map_flat(const Op &op, const float *src, float *dst, std::size_t begin, std::size_t end,
              std::size_t count, bool past_caches) {
    const std::size_t whole = end * 16 <= count ? end : count / 16;
    if (past_caches && can_stream(dst)) {
        for (std::size_t i = begin; i < whole; ++i) stream(dst + i * 16, op(load(src + i * 16)));
        stream_end();
    } else {
        for (std::size_t i = begin; i < whole; ++i) store(dst + i * 16, op(load(src + i * 16)));
    }
    if (whole < end) {
        const std::size_t rest = count - whole * 16;
        store_part(dst + whole * 16, op(load_part(src + whole * 16, rest)), rest);
    }
}

// Rows [begin, end): groups start anew in each row, a short last group is filled with zeros.
template <class Op>
void map_rows(const Op &op, const float *src, float *dst, std::size_t begin, std::size_t end,
              std::size_t columns) {
    const std::size_t whole = columns / 16 * 16;
    for (std::size_t row = begin; row < end; ++row) {
        const float *from = src + row * columns;
        float *to = dst + row * columns;
        for (std::size_t c = 0; c < whole; c += 16) store(to + c, op(load(from + c)));
        if (whole < columns) {
            const std::size_t rest = columns - whole;
            store_part(to + whole, op(load_part(from + whole, rest)), rest);
        }
    }
}

inline void add_round_bf16(float *sum, const float *part, std::size_t begin, std::size_t end,
                           std::size_t count) {
    for (std::size_t i = begin; i < end; ++i) {
        float *to = sum + i * 16;
        const float *from = part + i * 16;
        if (i * 16 + 16 <= count) {
            store(to, round_bf16(add(load(to), load(from))));
        } else {
            const std::size_t rest = count - i * 16;
            store_part(to, round_bf16(add(load_part(to, rest), load_part(from, rest))), rest);
        }
    }
}

// Runs of up to kRun neighbouring tiles [begin, end): long pieces of each row are read together, and
// the run's tiles stay in the first cache.
template <class Codec>
void pack_runs(const float *src, std::uint8_t *dst, const Tiling &tiling, std::size_t begin,
               std::size_t end) {
    constexpr std::size_t kTileBytes = Codec::kExponentBytes + 64 * Codec::kGroupBytes;
    for (std::size_t run = begin; run < end; ++run) {
        const Run at = tiling.run(run);
        std::uint8_t *tiles = dst + at.first_tile * kTileBytes;
        if (at.rows < 32 || at.columns < at.tiles * 32)
            std::memset(tiles, 0, at.tiles * kTileBytes);
        const float *corner = src + at.first_element;
        for (std::size_t row = 0; row < at.rows; ++row) {
            const float *from = corner + row * tiling.columns;
            const std::size_t face_row = (row / 16) * 32 + row % 16;
            for (std::size_t column = 0; column < at.columns; column += 16) {
                // Short pieces of rows defeat the hardware prefetcher: ask two rows ahead. Past the
                // end of the array this does nothing.
                __builtin_prefetch(from + 2 * tiling.columns + column);
                std::uint8_t *tile = tiles + column / 32 * kTileBytes;
                const std::size_t group = face_row + column / 16 % 2 * 16;
                const std::size_t rest = at.columns - column;
                const Block block =
                    rest >= 16 ? load(from + column) : load_part(from + column, rest);
                Codec::encode_group(block, tile + group,
                                    tile + Codec::kExponentBytes + group * Codec::kGroupBytes);
            }
        }
    }
}

template <class Codec>
void unpack_runs(const std::uint8_t *src, float *dst, const Tiling &tiling, std::size_t begin,
                 std::size_t end, bool past_caches) {
    constexpr std::size_t kTileBytes = Codec::kExponentBytes + 64 * Codec::kGroupBytes;
    const bool streaming = past_caches && can_stream(dst) && tiling.columns % 16 == 0;
    for (std::size_t run = begin; run < end; ++run) {
        const Run at = tiling.run(run);
        const std::uint8_t *tiles = src + at.first_tile * kTileBytes;
        float *corner = dst + at.first_element;
        for (std::size_t row = 0; row < at.rows; ++row) {
            float *to = corner + row * tiling.columns;
            const std::size_t face_row = (row / 16) * 32 + row % 16;
            for (std::size_t column = 0; column < at.columns; column += 16) {
                const std::uint8_t *tile = tiles + column / 32 * kTileBytes;
                const std::size_t group = face_row + column / 16 % 2 * 16;
                const Block block = Codec::decode_group(
                    tile + group, tile + Codec::kExponentBytes + group * Codec::kGroupBytes);
                const std::size_t rest = at.columns - column;
                if (streaming)
                    stream(to + column, block);
                else if (rest >= 16)
                    store(to + column, block);
                else
                    store_part(to + column, block, rest);
            }
        }
    }
    if (streaming) stream_end();
}
