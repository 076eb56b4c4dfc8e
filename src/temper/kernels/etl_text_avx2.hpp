// Eight fields of one column at once, where the processor has AVX2; unusual ones are refused.
#pragma once
#include "etl_chain.hpp"

namespace temper_etl {

// Where the fields of one column lie: starts[row * stride], up to before starts[row * stride + 1].
struct Fields {
    const char *text;
    const uint32_t *starts;
    size_t stride, count;
};

#ifdef __x86_64__
#define TEMPER_AVX2 __attribute__((target("avx2"))) inline

inline bool has_avx2() {
    static const bool found = __builtin_cpu_supports("avx2");
    return found;
}

TEMPER_AVX2 __m256i all8(int byte) { return _mm256_set1_epi8(char(byte)); }
TEMPER_AVX2 __m256i all32(int value) { return _mm256_set1_epi32(value); }

// Loads and inserts throughout: they are faster than gathers for what is in the first cache.
TEMPER_AVX2 __m256i lengths(const Fields &fields, size_t row) {
    const auto edges = [&](size_t k) {  // a field's start, and the next one's above it
        const uint32_t *at = fields.starts + (row + k) * fields.stride;
        return int64_t(load<uint64_t>(reinterpret_cast<const char *>(at)));
    };
    const __m256 low =
        _mm256_castsi256_ps(_mm256_setr_epi64x(edges(0), edges(1), edges(4), edges(5)));
    const __m256 high =
        _mm256_castsi256_ps(_mm256_setr_epi64x(edges(2), edges(3), edges(6), edges(7)));
    const __m256i start = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0x88));
    const __m256i next = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd));
    return _mm256_add_epi32(_mm256_sub_epi32(next, start), all32(-1));
}

// Integers of up to four characters, or missing, through the column's table.
TEMPER_AVX2 bool ints8(const Column &col, const Fields &fields, size_t row, uint32_t *out) {
    const __m256i length = lengths(fields, row);
    const auto text = [&](size_t k) {
        return int(load<uint32_t>(fields.text + fields.starts[(row + k) * fields.stride]));
    };
    __m256i word = _mm256_setr_epi32(text(0), text(1), text(2), text(3), text(4), text(5), text(6),
                                     text(7));
    const __m256i minus = _mm256_cmpeq_epi32(_mm256_and_si256(word, all32(0xff)), all32('-'));
    const __m256i missing = _mm256_cmpeq_epi32(length, all32(0));
    word = _mm256_srlv_epi32(word, _mm256_and_si256(minus, all32(8)));
    const __m256i count = _mm256_add_epi32(length, minus);
    const __m256i unused = _mm256_sub_epi32(all32(32), _mm256_slli_epi32(count, 3));
    const __m256i digits = _mm256_sllv_epi32(_mm256_xor_si256(word, all32(0x30303030)), unused);
    __m256i value = _mm256_maddubs_epi16(digits, _mm256_set1_epi16(0x010a));  // tens and ones
    value = _mm256_madd_epi16(value, all32(0x00010064));                      // hundreds and ones
    value = _mm256_sub_epi32(_mm256_xor_si256(value, minus), minus);
    const __m256i at = _mm256_sub_epi32(value, all32(int(Column::kTableLow)));
    // Sign bits of bytes: no digit, or below the table.
    __m256i bad = _mm256_or_si256(digits, _mm256_cmpgt_epi8(digits, all8(9)));
    bad = _mm256_or_si256(bad, _mm256_srai_epi32(at, 31));
    bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(length, all32(4)));
    bad = _mm256_or_si256(bad, _mm256_andnot_si256(missing, _mm256_cmpgt_epi32(all32(1), count)));
    if (_mm256_movemask_epi8(bad)) return false;
    const __m256i further = _mm256_and_si256(missing, all32(int(Column::kMissing)));
    const int *table = reinterpret_cast<const int *>(col.table32.data());
    const __m256i found = _mm256_i32gather_epi32(table, _mm256_add_epi32(at, further), 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), found);
    return true;
}

// A bit pattern of four times eight hexadecimal digits: bytes of numbers in 16-bit lanes.
TEMPER_AVX2 __m256i hex_bytes(__m256i c, __m256i &valid) {
    const __m256i number = _mm256_sub_epi8(c, all8('0'));
    const __m256i letter = _mm256_sub_epi8(_mm256_or_si256(c, all8(0x20)), all8('a'));
    const __m256i digit = _mm256_cmpeq_epi8(_mm256_min_epu8(number, all8(9)), number);
    const __m256i alpha = _mm256_cmpeq_epi8(_mm256_min_epu8(letter, all8(5)), letter);
    valid = _mm256_or_si256(valid, _mm256_or_si256(digit, alpha));
    const __m256i nibbles =
        _mm256_add_epi8(_mm256_and_si256(c, all8(0x0f)), _mm256_and_si256(alpha, all8(9)));
    return _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x0110));
}

// Remainders of four numbers in 64-bit lanes, as Remainder::of.
TEMPER_AVX2 __m256i remainders(__m256i v, const Remainder &by) {
    const __m256i reciprocal = _mm256_set1_epi64x(int64_t(by.reciprocal));
    const __m256i divisor = _mm256_set1_epi64x(int64_t(by.divisor));
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(reciprocal, 32), v);
    const __m256i low =
        _mm256_add_epi64(_mm256_mul_epu32(reciprocal, v), _mm256_slli_epi64(high, 32));
    const __m256i carry = _mm256_srli_epi64(_mm256_mul_epu32(low, divisor), 32);
    const __m256i product = _mm256_mul_epu32(_mm256_srli_epi64(low, 32), divisor);
    return _mm256_srli_epi64(_mm256_add_epi64(product, carry), 32);
}

// Eight characters of each of four fields.
TEMPER_AVX2 __m256i four_words(const Fields &fields, size_t row) {
    const auto word = [&](size_t k) {
        return int64_t(load<uint64_t>(fields.text + fields.starts[(row + k) * fields.stride]));
    };
    return _mm256_setr_epi64x(word(0), word(1), word(2), word(3));
}

// Eight hexadecimal digits, or missing, and a Modulus.
TEMPER_AVX2 bool hex8x8(const Column &col, const Fields &fields, size_t row, uint32_t *out) {
    const __m256i length = lengths(fields, row);
    const __m256i missing = _mm256_cmpeq_epi32(length, _mm256_setzero_si256());
    const __m256i usual =
        _mm256_or_si256(missing, _mm256_cmpeq_epi32(length, all32(8)));
    if (_mm256_movemask_epi8(usual) != -1) return false;
    __m256i valid_low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(missing));
    __m256i valid_high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(missing, 1));
    const __m256i low = hex_bytes(four_words(fields, row), valid_low);
    const __m256i high = hex_bytes(four_words(fields, row + 4), valid_high);
    if (_mm256_movemask_epi8(_mm256_and_si256(valid_low, valid_high)) != -1) return false;
    // To 64-bit lanes, two low and two high fields in each half, the first digit highest.
    const __m256i packed = _mm256_packus_epi16(low, high);
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, 2, 1, 0, -1, -1, -1, -1, 11, 10, 9, 8, -1, -1, -1, -1));
    const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi64x(0x04040404));
    const __m256i even = remainders(_mm256_shuffle_epi8(packed, first), col.remainder);
    const __m256i odd = remainders(_mm256_shuffle_epi8(packed, second), col.remainder);
    // even holds fields 0, 4, 2, 6 and odd 1, 5, 3, 7.
    __m256i found = _mm256_or_si256(even, _mm256_slli_epi64(odd, 32));
    found = _mm256_permute4x64_epi64(found, 0xd8);
    found = _mm256_blendv_epi8(found, all32(int(col.missing)), missing);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), found);
    return true;
}

// As many fields from `row` on as go eight at a time; returns the first row that is not done.
TEMPER_AVX2 size_t eights(const Column &col, const Fields &fields, size_t row, uint32_t *out) {
    if (col.kind == Kind::Int)
        while (row + 8 <= fields.count && ints8(col, fields, row, out + row)) row += 8;
    else if (col.kind == Kind::Hex && col.remainder.divisor)
        while (row + 8 <= fields.count && hex8x8(col, fields, row, out + row)) row += 8;
    return row;
}
#else
inline bool has_avx2() { return false; }
inline size_t eights(const Column &, const Fields &, size_t row, uint32_t *) { return row; }
#endif

}  // namespace temper_etl
