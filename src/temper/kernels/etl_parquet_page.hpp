// Parts of a Parquet page: its header, and the runs of levels and indices in it.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "etl_parquet_meta.hpp"

namespace temper_etl::parquet {

enum PageType { kData = 0, kDictionary = 2, kDataV2 = 3 };
enum Encoding { kPlain = 0, kPlainDictionary = 2, kRle = 3, kRleDictionary = 8 };

struct PageHeader {
    int32_t type = -1, compressed = -1, uncompressed = -1;
    int32_t values = -1, encoding = -1, level_encoding = kRle;
    int32_t level_bytes = 0, repetition_bytes = 0;  // of the second version
    bool is_compressed = true;
};

inline PageHeader read_header(Bytes &in) {
    PageHeader h;
    int32_t described = -1;  // the type of page whose own header is there
    std::array<int32_t, 7> own;  // fields of that header by number
    own.fill(-1);
    read_struct(in, [&](int id, int type) {
        if (type == kI32 && id == 1) h.type = int32_t(in.zigzag());
        else if (type == kI32 && id == 2) h.uncompressed = int32_t(in.zigzag());
        else if (type == kI32 && id == 3) h.compressed = int32_t(in.zigzag());
        else if (type == kStruct && (id == 5 || id == 7 || id == 8)) {
            if (described >= 0) fail("a page has two headers");
            described = id == 5 ? kData : id == 7 ? kDictionary : kDataV2;
            read_struct(in, [&](int inner, int kind) {
                if (kind == kI32 && inner >= 1 && inner <= 6) own[size_t(inner)] = int32_t(in.zigzag());
                else if (kind <= kFalse && inner == 7) h.is_compressed = kind == kTrue;
                else skip(in, kind);
            });
        } else skip(in, type);
    });
    if (h.type != described) fail("its header does not describe the page");
    const size_t needed = described == kData ? 4 : described == kDictionary ? 2 : 6;
    for (size_t k = 1; k <= needed; k++)
        if (own[k] < 0) fail("its header lacks a field");  // or has a negative one
    h.values = own[1];
    h.encoding = described == kDataV2 ? own[4] : own[2];
    if (described == kData) h.level_encoding = own[3];
    if (described == kDataV2) h.level_bytes = own[5], h.repetition_bytes = own[6];
    if (h.compressed < 0 || h.uncompressed < 0 || h.repetition_bytes != 0)
        fail("its header has a wrong size");
    return h;
}

// Numbers of a fixed bit width as Parquet packs them: runs of one value and bit-packed runs.
class Runs {
public:
    Runs() = default;
    Runs(Bytes in, unsigned width) : in_(in), width_(width) {
        if (width > 32) fail("its indices are too wide");
    }

    void get(uint32_t *to, size_t count) {
        while (count) {
            if (!left_) next();
            size_t n = size_t(std::min<uint64_t>(count, left_));
            if (packed_) unpack(to, n);
            else std::fill(to, to + n, value_);
            to += n, count -= n, left_ -= n;
        }
    }

private:
    void next() {
        uint64_t header = in_.varint();
        left_ = header >> 1;
        packed_ = nullptr;
        if (left_ == 0 || header >> 32) fail("a run has a wrong length");
        if (header & 1) {
            taken_ = 0;
            packed_ = in_.take(left_ * width_);
            left_ *= 8;
            return;
        }
        const unsigned bytes = (width_ + 7) / 8;
        value_ = 0;
        std::memcpy(&value_, in_.take(bytes), bytes);
    }

    void unpack(uint32_t *to, size_t count) {
        uint32_t *end = to + count;
        for (; to < end && taken_ % 8; to++) *to = one();
        // Groups of eight start at a byte; the last ones are too near the page's end to load words.
        const uint8_t *from = packed_ + taken_ / 8 * width_;
        const size_t safe = size_t(in_.end - from) < width_ + 8 ? 0 : size_t(in_.end - from) - 8;
        const size_t groups = width_ ? std::min(size_t(end - to) / 8, safe / width_) : 0;
        kUnpack[width_](from, to, groups);
        to += 8 * groups, taken_ += 8 * groups;
        for (; to < end; to++) *to = one();
    }

    uint32_t one() {
        const uint64_t bit = taken_++ * width_;
        const uint8_t *at = packed_ + bit / 8;
        uint64_t word = 0;
        if (in_.end - at >= 8) std::memcpy(&word, at, 8);
        else std::memcpy(&word, at, size_t(in_.end - at));
        return uint32_t(word >> (bit & 7) & ((uint64_t(1) << width_) - 1));
    }

    // With the width known when it is compiled, shifts are constants.
    template <unsigned width>
    static void unpack_groups(const uint8_t *from, uint32_t *to, size_t groups) {
        for (; groups; groups--, from += width, to += 8)
            for (unsigned k = 0; k < 8; k++) {
                uint64_t word;
                std::memcpy(&word, from + k * width / 8, 8);
                to[k] = uint32_t(word >> (k * width % 8) & ((uint64_t(1) << width) - 1));
            }
    }

    template <size_t... width> static constexpr auto table(std::index_sequence<width...>) {
        return std::array{&unpack_groups<unsigned(width)>...};
    }

    Bytes in_;
    unsigned width_ = 0;
    uint64_t left_ = 0;
    uint32_t value_ = 0;
    const uint8_t *packed_ = nullptr;
    uint64_t taken_ = 0;  // of the packed run

    using Unpack = void (*)(const uint8_t *, uint32_t *, size_t);
    static const std::array<Unpack, 33> kUnpack;
};

inline const std::array<Runs::Unpack, 33> Runs::kUnpack = table(std::make_index_sequence<33>());

}  // namespace temper_etl::parquet
