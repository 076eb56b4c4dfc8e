// Fields of text to the numbers of one column: eight at a time, one by one, or the long way.
#pragma once
#include "etl_text_avx2.hpp"

namespace temper_etl {

// A bit for each of 64 characters.
inline uint64_t matches(const char *p, char wanted) {
    uint64_t found = 0;
#ifdef __x86_64__
    const __m128i all = _mm_set1_epi8(wanted);
    for (int k = 0; k < 64; k += 16) {
        const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p + k));
        found |= uint64_t(uint32_t(_mm_movemask_epi8(_mm_cmpeq_epi8(some, all)))) << k;
    }
#else
    for (int k = 0; k < 64; k += 8) {
        const uint64_t other = load<uint64_t>(p + k) ^ rep(uint8_t(wanted));
        const uint64_t same = ~(((other & rep(0x7f)) + rep(0x7f)) | other | rep(0x7f));
        found |= ((same >> 7) * 0x0102040810204080ull >> 56) << k;
    }
#endif
    return found;
}

// Writes what `quick` makes of each field; what it leaves takes the long way.
template <class T, class Quick>
bool each_field(const Column &col, const Fields &fields, T *out, const Quick &quick) {
    const Fields f = fields;
    const bool wide = has_avx2();
    for (size_t row = 0; row < f.count;) {
        if constexpr (sizeof(T) == 4)
            if (wide) row = eights(col, f, row, out);
        for (size_t stop = std::min(row + 8, f.count); row < stop; row++) {
            const char *p = f.text + f.starts[row * f.stride];
            const char *end = f.text + f.starts[row * f.stride + 1] - 1;
            if (quick(p, size_t(end - p), out[row])) continue;
            uint64_t bits;
            if (read_field(col, p, end, bits) != Good) return false;
            out[row] = T(bits);
        }
    }
    return true;
}

// One column's fields through its chain; false when one is malformed.
template <class T>
bool parse_column(const Column &col, const Fields &fields, const std::vector<T> &values, T *out) {
    const T *table = values.data();
    if (col.kind == Kind::Hex)
        return each_field(col, fields, out, [&](const char *p, size_t length, T &to) {
            uint32_t value;
            if (length != 8 || !hex8(p, value) || !col.fits(value)) return false;
            to = T(col.from_hex(value));
            return true;
        });
    if (col.kind == Kind::Int)
        return each_field(col, fields, out, [=](const char *p, size_t length, T &to) {
            // Up to four digits. Signs and missing values come as they like: no branches.
            const uint32_t minus = *p == '-', missing = length == 0;
            const uint32_t count = uint32_t(length) - minus;
            uint32_t digits = (load<uint32_t>(p + minus) ^ 0x30303030u) << (-8 * count & 31);
            digits &= -uint32_t(count != 0);
            const uint32_t odd = ((digits + 0x76767676u) | digits) & 0x80808080u;
            const uint32_t pairs = (digits * 10 + (digits >> 8)) & 0x00ff00ffu;
            const uint32_t value = (pairs * 100 + (pairs >> 16)) & 0xffffu;
            const uint32_t at = (value ^ -minus) + minus - uint32_t(Column::kTableLow);
            if (odd | (count > 4) | (count < minus) | (at >= Column::kTableSize)) return false;
            to = table[at + missing * Column::kMissing];
            return true;
        });
    return each_field(col, fields, out, [](const char *, size_t, T &) { return false; });
}

}  // namespace temper_etl
