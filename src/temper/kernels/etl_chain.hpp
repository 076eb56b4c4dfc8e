// One column of a preprocessing plan: how its text is read and the chain of operators on it.
#pragma once
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace temper_etl {

enum class Kind : int { Int = 0, Float = 1, Hex = 2, Skip = 3, Text = 4 };
enum class Out : int { F32 = 0, I32 = 1, I64 = 2 };
enum class Code : int { Neg2Zero = 0, Clip = 1, Log = 2, Log1p = 3, Bucketize = 4, Modulus = 5 };
enum Reason : int { Good = 0, BadColumns = 1, BadInteger = 2, BadFloat = 3, BadHex = 4, BadRange = 5 };

// Exact in both domains: integers stay integers until an operator makes them float32.
struct Step {
    Code code;
    bool has_low, has_high;
    double low, high;  // Clip's bounds, Log's epsilon, Modulus' divisor
    std::vector<double> edges;
};

// Remainders without a division, after Lemire.
struct Remainder {
    uint32_t divisor = 0;
    uint64_t reciprocal = 0;
    uint32_t of(uint32_t v) const {
        return uint32_t((__uint128_t(reciprocal * v) * divisor) >> 64);
    }
};

struct Column {
    // Integers in [-64, 2^14 - 64) take the whole chain as one table lookup: in Criteo's counts
    // that is nearly every value. 64 KiB of float32 stay in a core's L2 beside the text.
    static constexpr int64_t kTableLow = -64;
    static constexpr size_t kTableSize = size_t(1) << 14;
    // Behind the table comes the missing value: from zero's place it is this far.
    static constexpr size_t kMissing = kTableSize + size_t(kTableLow);

    Kind kind = Kind::Int;
    Out out = Out::I64;
    std::vector<Step> steps;
    double fill = 0;
    uint64_t missing = 0;        // bits of the output for a missing value
    std::vector<uint64_t> table64;
    std::vector<uint32_t> table32;
    Remainder remainder;         // with a divisor: the chain is one Modulus below 2^32

    size_t width() const { return out == Out::I64 ? 8 : 4; }

    // Applies the chain to n values that are integers (in i) or float32 (in f); returns true when
    // the results are float32. Hexadecimal text is `whole`, 64 unsigned bits, as hashes are; what
    // follows a Modulus or a Bucketize is small and the same either way.
    bool run(int64_t *i, float *f, size_t n, bool is_float, bool whole) const {
        for (const Step &s : steps) {
            switch (s.code) {
                case Code::Neg2Zero:
                    if (is_float)
                        for (size_t k = 0; k < n; k++) f[k] = f[k] < 0.f ? 0.f : f[k];
                    else if (!whole)
                        for (size_t k = 0; k < n; k++) i[k] = i[k] < 0 ? 0 : i[k];
                    break;
                case Code::Clip:
                    if (is_float)
                        for (size_t k = 0; k < n; k++) {
                            if (s.has_low && f[k] < float(s.low)) f[k] = float(s.low);
                            if (s.has_high && f[k] > float(s.high)) f[k] = float(s.high);
                        }
                    else if (whole)
                        for (size_t k = 0; k < n; k++) {
                            const uint64_t low = s.low > 0 ? uint64_t(s.low) : 0;
                            const uint64_t high = s.high > 0 ? uint64_t(s.high) : 0;
                            if (s.has_low && uint64_t(i[k]) < low) i[k] = int64_t(low);
                            if (s.has_high && uint64_t(i[k]) > high) i[k] = int64_t(high);
                        }
                    else
                        for (size_t k = 0; k < n; k++) {
                            if (s.has_low && i[k] < int64_t(s.low)) i[k] = int64_t(s.low);
                            if (s.has_high && i[k] > int64_t(s.high)) i[k] = int64_t(s.high);
                        }
                    break;
                case Code::Log:
                case Code::Log1p:
                    // The argument is formed in float32 as torch forms it; the logarithm is
                    // taken in double and rounded once.
                    for (size_t k = 0; k < n; k++) {
                        float x = is_float ? f[k] : whole ? float(uint64_t(i[k])) : float(i[k]);
                        f[k] = s.code == Code::Log ? float(std::log(double(x + float(s.low))))
                                                   : float(std::log1p(double(x)));
                    }
                    is_float = true;
                    break;
                case Code::Bucketize:
                    for (size_t k = 0; k < n; k++) {
                        double x = is_float ? double(f[k])
                                   : whole  ? double(uint64_t(i[k]))
                                            : double(i[k]);
                        i[k] = std::lower_bound(s.edges.begin(), s.edges.end(), x) - s.edges.begin();
                    }
                    is_float = false;
                    break;
                case Code::Modulus: {
                    int64_t d = int64_t(s.low);
                    if (whole) {
                        for (size_t k = 0; k < n; k++) i[k] = int64_t(uint64_t(i[k]) % uint64_t(d));
                        break;
                    }
                    for (size_t k = 0; k < n; k++) {
                        int64_t r = i[k] % d;
                        i[k] = r < 0 ? r + d : r;
                    }
                    break;
                }
            }
        }
        return is_float;
    }

    uint64_t bits(bool is_float, int64_t i, float f, bool whole = false) const {
        uint64_t r = 0;
        if (out == Out::F32) {
            float v = is_float ? f : whole ? float(uint64_t(i)) : float(i);
            std::memcpy(&r, &v, 4);
        } else {
            r = uint64_t(i);
        }
        return r;
    }

    uint64_t one(int64_t i, bool whole = false) const {
        float f = 0;
        bool is_float = run(&i, &f, 1, false, whole);
        return bits(is_float, i, f, whole);
    }

    uint64_t one(float f) const {
        int64_t i = 0;
        bool is_float = run(&i, &f, 1, true, false);
        return bits(is_float, i, f);
    }

    // A chain without steps keeps its integers: they may have to fit in 32 bits of output, and
    // unsigned output has no place for negative ones.
    bool fits(int64_t i) const {
        if (!steps.empty()) return true;
        return out != Out::I32 || (i >= std::numeric_limits<int32_t>::min() &&
                                   i <= std::numeric_limits<int32_t>::max());
    }

    bool whole() const { return kind == Kind::Hex || kind == Kind::Text; }

    bool reduces() const {
        for (const Step &s : steps)
            if (s.code == Code::Modulus || s.code == Code::Bucketize) return true;
        return out == Out::F32;
    }

    void finish() {
        missing = kind == Kind::Float ? one(float(fill)) : one(int64_t(fill));
        if (steps.size() == 1 && steps[0].code == Code::Modulus && steps[0].low < 4294967296.0) {
            remainder.divisor = uint32_t(steps[0].low);
            remainder.reciprocal = ~uint64_t(0) / remainder.divisor + 1;
        }
        if (kind != Kind::Int) return;
        for (size_t k = 0; k <= kTableSize; k++) {
            uint64_t v = k < kTableSize ? one(int64_t(k) + kTableLow) : missing;
            if (width() == 8) table64.push_back(v);
            else table32.push_back(uint32_t(v));
        }
    }

    uint64_t from_int(int64_t v) const {
        size_t at = size_t(v - kTableLow);
        if (at < kTableSize) return width() == 8 ? table64[at] : table32[at];
        return one(v);
    }

    uint64_t from_hex(uint64_t v) const {
        if (remainder.divisor && v <= 0xffffffffu) return remainder.of(uint32_t(v));
        return one(int64_t(v), true);
    }
};

constexpr uint64_t rep(uint64_t byte) { return byte * 0x0101010101010101ull; }

template <class Word> Word load(const char *p) {
    Word word;
    std::memcpy(&word, p, sizeof(Word));
    return word;
}

// Eight hexadecimal digits of either case; false when one is none.
inline bool hex8(const char *p, uint32_t &value) {
#ifdef __x86_64__
    const auto all = [](int byte) { return _mm_set1_epi8(char(byte)); };
    const auto at_most = [](__m128i v, __m128i most) {
        return _mm_cmpeq_epi8(_mm_min_epu8(v, most), v);
    };
    const __m128i c = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
    const __m128i digit = at_most(_mm_sub_epi8(c, all('0')), all(9));
    const __m128i alpha =
        at_most(_mm_sub_epi8(_mm_or_si128(c, all(0x20)), all('a')), all(5));
    if ((_mm_movemask_epi8(_mm_or_si128(digit, alpha)) & 0xff) != 0xff) return false;
    __m128i v = _mm_add_epi8(_mm_and_si128(c, all(0x0f)), _mm_and_si128(alpha, all(9)));
    v = _mm_or_si128(_mm_slli_epi16(v, 4), _mm_srli_epi16(v, 8));
    v = _mm_and_si128(v, _mm_set1_epi16(0xff));
    value = __builtin_bswap32(uint32_t(_mm_cvtsi128_si32(_mm_packus_epi16(v, v))));
#else
    const uint64_t c = load<uint64_t>(p), low = c | rep(0x20);
    const uint64_t digit = (c + rep(0x80 - 0x30)) & ~(c + rep(0x7f - 0x39));
    const uint64_t alpha = (low + rep(0x80 - 0x61)) & ~(low + rep(0x7f - 0x66));
    if (((digit | alpha) & rep(0x80)) != rep(0x80) || (c & rep(0x80))) return false;
    uint64_t v = (c & rep(0x0f)) + 9 * ((c >> 6) & rep(1));
    v = ((v << 4) | (v >> 8)) & 0x00ff00ff00ff00ffull;
    v = ((v << 8) | (v >> 16)) & 0x0000ffff0000ffffull;
    value = uint32_t((v << 16) | (v >> 32));
#endif
    return true;
}

inline int hex_digit(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Text to 64 bits: FNV-1a, then a mixing that spreads its low bits. pure.py has the same.
inline uint64_t text_hash(const char *p, const char *end, bool quoted) {
    uint64_t h = 0xcbf29ce484222325ull;
    for (; p < end; p++) {
        h = (h ^ uint8_t(*p)) * 0x100000001b3ull;
        if (quoted && *p == '"' && p + 1 < end && p[1] == '"') p++;  // doubled stands for one
    }
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 33;
}

inline Reason bad_text(Kind kind) {
    return kind == Kind::Int    ? BadInteger
           : kind == Kind::Float ? BadFloat
                                 : BadHex;
}

// Any text of one field, spaces and a pair of quotes around it allowed; empty means missing.
inline Reason read_field(const Column &col, const char *p, const char *end, uint64_t &bits) {
    const auto trim = [&] {
        while (p < end && *p == ' ') p++;
        while (end > p && (end[-1] == ' ' || end[-1] == '\r')) end--;
    };
    trim();
    bits = col.missing;
    const bool quoted = p < end && (*p == '"' || end[-1] == '"');
    if (quoted) {  // half of a quoted field is no field
        if (end - p < 2 || *p != '"' || end[-1] != '"') return bad_text(col.kind);
        p++, end--;
        trim();
    }
    if (p == end) return Good;
    if (col.kind == Kind::Text) {
        bits = col.from_hex(text_hash(p, end, quoted));
        return Good;
    }
    if (col.kind == Kind::Hex) {
        if (end - p > 2 && p[0] == '0' && (p[1] | 0x20) == 'x') p += 2;
        if (end - p > 16) return BadRange;
        uint64_t v = 0;
        for (; p < end; p++) {
            int d = hex_digit(static_cast<unsigned char>(*p));
            if (d < 0) return BadHex;
            v = v << 4 | uint64_t(d);
        }
        if (!col.fits(int64_t(v))) return BadRange;
        bits = col.from_hex(v);
        return Good;
    }
    if (*p == '+' && end - p > 1 && p[1] != '-') p++;
    if (col.kind == Kind::Int) {
        int64_t v = 0;
        auto [stop, error] = std::from_chars(p, end, v);
        if (error == std::errc::result_out_of_range) return BadRange;
        if (error != std::errc() || stop != end) return BadInteger;
        if (!col.fits(v)) return BadRange;
        bits = col.from_int(v);
        return Good;
    }
    double v = 0;
    auto [stop, error] = std::from_chars(p, end, v);
    if (error == std::errc::result_out_of_range) return BadRange;
    if (error != std::errc() || stop != end || std::isnan(v)) return BadFloat;
    if (std::isinf(float(v))) return BadRange;
    bits = col.one(float(v));
    return Good;
}

}  // namespace temper_etl
