// Arrow arrays through a column's chain: numbers and text with validity bitmaps.
#pragma once
#include <tuple>

#include "etl_chain.hpp"

namespace temper_etl {

using BadRows = std::vector<std::tuple<int64_t, int>>;  // row, reason

enum class Source : int { I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, Text32, Text64 };

// One Arrow array: addresses of its buffers and the offset of its first element.
struct Array {
    int column;
    Source source;
    const char *values;       // numbers, or the bytes of text
    const char *offsets;      // of text
    const uint8_t *validity;  // bitmap, null when all are valid
    int64_t offset, rows;
    char *out;
};

inline bool valid(const Array &a, int64_t k) {
    int64_t at = a.offset + k;
    return !a.validity || (a.validity[at >> 3] >> (at & 7) & 1);
}

inline void put(const Column &col, char *out, int64_t k, uint64_t bits) {
    if (col.width() == 8) std::memcpy(out + 8 * k, &bits, 8);
    else std::memcpy(out + 4 * k, &bits, 4);
}

template <typename T>
void integers(const Column &col, const Array &a, BadRows &bad) {
    const T *in = reinterpret_cast<const T *>(a.values) + a.offset;
    for (int64_t k = 0; k < a.rows; k++) {
        uint64_t bits = col.missing;
        if (valid(a, k)) {
            int64_t v = int64_t(in[k]);
            constexpr bool unsigned64 = std::is_same_v<T, uint64_t>;
            const bool beyond = v < 0 && (unsigned64 ? !col.whole()
                                                     : col.whole() && !col.reduces());
            if (beyond || !col.fits(v)) bad.emplace_back(k, BadRange);
            else if (col.kind == Kind::Float) bits = col.one(float(in[k]));
            else bits = col.kind == Kind::Int ? col.from_int(v)
                        : v >= 0 || unsigned64 ? col.from_hex(uint64_t(v))
                                               : col.one(v);
        }
        put(col, a.out, k, bits);
    }
}

template <typename T>
void floats(const Column &col, const Array &a, BadRows &bad) {
    const T *in = reinterpret_cast<const T *>(a.values) + a.offset;
    constexpr int64_t kStep = 1024;
    float f[kStep];
    int64_t i[kStep];
    for (int64_t from = 0; from < a.rows; from += kStep) {
        int64_t n = std::min(kStep, a.rows - from);
        for (int64_t k = 0; k < n; k++) f[k] = float(in[from + k]);
        bool is_float = col.run(i, f, size_t(n), true, false);
        for (int64_t k = 0; k < n; k++) {
            T v = in[from + k];
            bool present = valid(a, from + k);
            // As in text: only an absent value is missing; what is no finite number is malformed.
            if (present && !std::isfinite(float(v))) {
                bad.emplace_back(from + k, std::isnan(v) ? BadFloat : BadRange);
                present = false;
            }
            put(col, a.out, from + k, present ? col.bits(is_float, i[k], f[k]) : col.missing);
        }
    }
}

// One field of text; what is missing or malformed leaves the missing value in `bits`.
inline Reason word(const Column &col, const char *p, size_t size, uint64_t &bits) {
    uint32_t value;
    if (size == 8 && col.kind == Kind::Hex && hex8(p, value) && col.fits(value)) {
        bits = col.from_hex(value);
        return Good;
    }
    bits = col.missing;
    Reason reason = size ? read_field(col, p, p + size, bits) : Good;
    if (reason != Good) bits = col.missing;
    return reason;
}

template <typename T>
void text(const Column &col, const Array &a, BadRows &bad) {
    const T *at = reinterpret_cast<const T *>(a.offsets) + a.offset;
    for (int64_t k = 0; k < a.rows; k++) {
        uint64_t bits = col.missing;
        if (valid(a, k)) {
            Reason reason = word(col, a.values + at[k], size_t(at[k + 1] - at[k]), bits);
            if (reason != Good) bad.emplace_back(k, reason);
        }
        put(col, a.out, k, bits);
    }
}

// Runs the chain over an array; rows that are malformed are listed and take the missing value.
inline void apply_chain(const Column &col, const Array &a, BadRows &bad) {
    switch (a.source) {
        case Source::I8: return integers<int8_t>(col, a, bad);
        case Source::I16: return integers<int16_t>(col, a, bad);
        case Source::I32: return integers<int32_t>(col, a, bad);
        case Source::I64: return integers<int64_t>(col, a, bad);
        case Source::U8: return integers<uint8_t>(col, a, bad);
        case Source::U16: return integers<uint16_t>(col, a, bad);
        case Source::U32: return integers<uint32_t>(col, a, bad);
        case Source::U64: return integers<uint64_t>(col, a, bad);
        case Source::F32: return floats<float>(col, a, bad);
        case Source::F64: return floats<double>(col, a, bad);
        case Source::Text32: return text<int32_t>(col, a, bad);
        case Source::Text64: return text<int64_t>(col, a, bad);
    }
}

}  // namespace temper_etl
