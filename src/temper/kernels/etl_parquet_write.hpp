// One flat column of numbers as Parquet pages: indices into a dictionary where that is smaller.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "etl_thrift_write.hpp"

namespace temper_etl {

// Numbers of parquet.thrift.
enum class Physical : int { Int32 = 1, Int64 = 2, Float = 4 };
enum class Encoding : int { Plain = 0, Rle = 3, RleDictionary = 8 };
enum class Page : int { Data = 0, Dictionary = 2 };

// Bytes that grow without being cleared first and keep their memory from part to part.
class Bytes {
public:
    const char *data() const { return data_.get(); }
    size_t size() const { return size_; }
    void clear(size_t room) {
        size_ = 0;
        if (room <= room_) return;
        data_.reset(new char[room]);
        room_ = room;
    }
    void add(const void *from, size_t count) { std::memcpy(take(count), from, count); }
    char *take(size_t count) { return data_.get() + std::exchange(size_, size_ + count); }

private:
    std::unique_ptr<char[]> data_;
    size_t size_ = 0, room_ = 0;
};

// 32 values of W bits each, least significant first, as Parquet packs them.
template <int W> void pack(const uint32_t *in, char *out, size_t count) {
    for (size_t from = 0; from < count; from += 32, in += 32) {
        uint64_t held = 0;
        int bits = 0;
#pragma GCC unroll 32
        for (int k = 0; k < 32; k++) {
            held |= uint64_t(in[k]) << bits;
            bits += W;
            if (bits < 32) continue;
            uint32_t word = uint32_t(held);
            std::memcpy(out, &word, 4);
            out += 4;
            held >>= 32;
            bits -= 32;
        }
    }
}

template <int... W> auto packers(std::integer_sequence<int, W...>) {
    using Pack = void (*)(const uint32_t *, char *, size_t);
    return std::array<Pack, sizeof...(W)>{pack<W + 1>...};
}

inline size_t bit_width(uint64_t largest) {
    return largest ? size_t(64 - __builtin_clzll(largest)) : 1;
}

// Distinct values by their bits, in order of appearance.
template <class T> class Distinct {
public:
    static constexpr size_t kMost = size_t(1) << 15;
    std::vector<T> values;

    void clear() {
        values.clear();
        slots_.assign(kMost * 2, Slot{0, 0});
    }

    // Writes each value's index; false once there are more than `most` values.
    bool index(const T *in, size_t count, uint32_t *out, size_t most) {
        for (size_t k = 0; k < count; k++) {
            size_t at = size_t(uint64_t(in[k]) * 0x9e3779b97f4a7c15ull >> 48);
            while (slots_[at].stored && slots_[at].value != in[k]) at = (at + 1) % (kMost * 2);
            if (!slots_[at].stored) {
                if (values.size() == most) return false;
                values.push_back(in[k]);
                slots_[at] = Slot{in[k], uint32_t(values.size())};
            }
            out[k] = slots_[at].stored - 1;
        }
        return true;
    }

private:
    struct Slot {
        T value;
        uint32_t stored;  // index + 1; 0 is free
    };
    std::vector<Slot> slots_;
};

// What one thread needs beside a column's bytes.
struct Scratch {
    Distinct<uint32_t> narrow;
    Distinct<uint64_t> wide;
    std::vector<uint32_t> index;  // of one page
};

class EncodedColumn {
public:
    Bytes dictionary, pages;  // in the file's order; no dictionary when the values are plain

    void encode(Physical type, const char *values, size_t rows, Scratch &scratch) {
        const bool integers = type != Physical::Float;
        if (type == Physical::Int64)
            choose<int64_t, uint64_t>(values, rows, integers, scratch.wide, scratch.index);
        else
            choose<int32_t, uint32_t>(values, rows, integers, scratch.narrow, scratch.index);
    }

private:
    static constexpr size_t kPageRows = size_t(1) << 14;
    static constexpr size_t kSampleRows = 4096;
    static constexpr size_t kHeaderBytes = 64;  // more than any page's header

    template <class Signed, class T>
    void choose(const char *values, size_t rows, bool integers, Distinct<T> &distinct,
                std::vector<uint32_t> &index) {
        const T *in = reinterpret_cast<const T *>(values);
        const size_t plain = rows * sizeof(T);
        // Nothing below is larger than plain values; packing writes 32 at a time.
        dictionary.clear(plain + kHeaderBytes);
        pages.clear(plain + (rows / kPageRows + 1) * kHeaderBytes + 32 * sizeof(T));
        index.resize(kPageRows);
        uint64_t range = ~uint64_t(0);  // largest value - smallest
        Signed low = 0;
        if (integers && rows) {
            const Signed *from = reinterpret_cast<const Signed *>(values);
            Signed high = low = from[0];
            for (size_t k = 0; k < rows; k++) {
                low = std::min(low, from[k]);
                high = std::max(high, from[k]);
            }
            range = uint64_t(high) - uint64_t(low);
        }
        // Where values fill their range, the range is the dictionary and nothing is looked up.
        if (range < rows / 8) return counted(in, rows, T(low), range, index);
        if (looked_up(in, rows, distinct, index)) return;
        if (range < rows && (range + 1) * sizeof(T) + rows * bit_width(range) / 8 < plain)
            return counted(in, rows, T(low), range, index);
        for (size_t at = 0; at < rows; at += kPageRows) {
            size_t count = std::min(kPageRows, rows - at);
            header(pages, Page::Data, Encoding::Plain, count, count * sizeof(T));
            pages.add(in + at, count * sizeof(T));
        }
    }

    template <class T>
    void counted(const T *in, size_t rows, T low, uint64_t range, std::vector<uint32_t> &index) {
        header(dictionary, Page::Dictionary, Encoding::Plain, range + 1, (range + 1) * sizeof(T));
        char *to = dictionary.take((range + 1) * sizeof(T));
        for (uint64_t k = 0; k <= range; k++) {
            T value = T(low + k);
            std::memcpy(to + k * sizeof(T), &value, sizeof(T));
        }
        for (size_t at = 0; at < rows; at += kPageRows) {
            size_t count = std::min(kPageRows, rows - at);
            for (size_t k = 0; k < count; k++) index[k] = uint32_t(in[at + k] - low);
            packed(index, count, bit_width(range));
        }
    }

    // False, and nothing written, where a dictionary would not pay.
    template <class T>
    bool looked_up(const T *in, size_t rows, Distinct<T> &distinct, std::vector<uint32_t> &index) {
        const size_t most = std::min(Distinct<T>::kMost, rows / 2);
        const size_t sample = std::min(kSampleRows, rows);
        distinct.clear();
        if (!distinct.index(in, sample, index.data(), std::min(most, sample / 2))) return false;
        for (size_t at = 0; at < rows; at += kPageRows) {
            size_t count = std::min(kPageRows, rows - at);
            if (!distinct.index(in + at, count, index.data(), most)) {
                pages.clear(0);
                return false;
            }
            packed(index, count, bit_width(distinct.values.size() - 1));
        }
        const size_t size = distinct.values.size() * sizeof(T);
        header(dictionary, Page::Dictionary, Encoding::Plain, distinct.values.size(), size);
        dictionary.add(distinct.values.data(), size);
        return true;
    }

    // One page of indices: their width, then a single bit-packed run in groups of eight.
    void packed(std::vector<uint32_t> &index, size_t count, size_t width) {
        static const auto pack_by_width = packers(std::make_integer_sequence<int, 32>());
        const size_t groups = (count + 7) / 8;
        std::fill(index.begin() + long(count), index.begin() + long((count + 31) / 32 * 32), 0u);
        Compact run;
        run.text += char(width);
        run.varint(groups << 1 | 1);
        const size_t size = run.text.size() + groups * width;
        header(pages, Page::Data, Encoding::RleDictionary, count, size);
        pages.add(run.text.data(), run.text.size());
        pack_by_width[width - 1](index.data(), pages.take(groups * width), count);
    }

    static void header(Bytes &to, Page page, Encoding encoding, size_t count, size_t size) {
        Compact thrift;
        thrift.open();
        thrift.number(1, Compact::I32, int(page));
        thrift.number(2, Compact::I32, int64_t(size));  // uncompressed
        thrift.number(3, Compact::I32, int64_t(size));  // compressed
        thrift.open(page == Page::Data ? 5 : 7);
        thrift.number(1, Compact::I32, int64_t(count));
        thrift.number(2, Compact::I32, int(encoding));
        if (page == Page::Data) {
            thrift.number(3, Compact::I32, int(Encoding::Rle));  // of levels, which are absent
            thrift.number(4, Compact::I32, int(Encoding::Rle));
        }
        thrift.close();
        thrift.close();
        to.add(thrift.text.data(), thrift.text.size());
    }
};

}  // namespace temper_etl
