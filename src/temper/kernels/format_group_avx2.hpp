// One group of 16 float32 values in two AVX2 registers.
// Included inside a namespace that is compiled for AVX2; mirrors format_group_portable.hpp.

struct Block {
    __m256i lo, hi;
};

inline Block load(const float *src) {
    const __m256i *p = reinterpret_cast<const __m256i *>(src);
    return {_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)};
}

inline Block part_mask(std::size_t count) {
    const __m256i first = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i n = _mm256_set1_epi32(static_cast<int>(count));
    return {_mm256_cmpgt_epi32(n, first),
            _mm256_cmpgt_epi32(n, _mm256_add_epi32(first, _mm256_set1_epi32(8)))};
}

inline Block load_part(const float *src, std::size_t count) {
    const Block mask = part_mask(count);
    const int *p = reinterpret_cast<const int *>(src);
    return {_mm256_maskload_epi32(p, mask.lo), _mm256_maskload_epi32(p + 8, mask.hi)};
}

inline void store(float *dst, const Block &block) {
    __m256i *p = reinterpret_cast<__m256i *>(dst);
    _mm256_storeu_si256(p, block.lo);
    _mm256_storeu_si256(p + 1, block.hi);
}

inline void store_part(float *dst, const Block &block, std::size_t count) {
    const Block mask = part_mask(count);
    int *p = reinterpret_cast<int *>(dst);
    _mm256_maskstore_epi32(p, mask.lo, block.lo);
    _mm256_maskstore_epi32(p + 8, mask.hi, block.hi);
}

// Past the caches: saves reading each destination line before it is overwritten.
inline bool can_stream(const float *dst) { return reinterpret_cast<std::uintptr_t>(dst) % 16 == 0; }
inline void stream(float *dst, const Block &block) {
    __m128i *p = reinterpret_cast<__m128i *>(dst);
    _mm_stream_si128(p, _mm256_castsi256_si128(block.lo));
    _mm_stream_si128(p + 1, _mm256_extracti128_si256(block.lo, 1));
    _mm_stream_si128(p + 2, _mm256_castsi256_si128(block.hi));
    _mm_stream_si128(p + 3, _mm256_extracti128_si256(block.hi, 1));
}
inline void stream_end() { _mm_sfence(); }

inline __m256i round_bf16(__m256i x) {
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)));
    const __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFFFF)),
                                           _mm256_set1_epi32(0x7F800000));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC00000), nan);
}

inline Block round_bf16(const Block &block) { return {round_bf16(block.lo), round_bf16(block.hi)}; }

inline __m256i truncate_tf32(__m256i x) {
    const __m256i zero = _mm256_cmpeq_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x7F800000)),
                                            _mm256_setzero_si256());
    const __m256i kept = _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xFFFFE000u)));
    const __m256i sign = _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    return _mm256_blendv_epi8(kept, sign, zero);
}

inline Block truncate_tf32(const Block &block) {
    return {truncate_tf32(block.lo), truncate_tf32(block.hi)};
}

inline Block mask_bits(const Block &block, std::uint32_t mask) {
    const __m256i m = _mm256_set1_epi32(static_cast<int>(mask));
    return {_mm256_and_si256(block.lo, m), _mm256_and_si256(block.hi, m)};
}

inline Block add(const Block &a, const Block &b) {
    return {_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(b.lo))),
            _mm256_castps_si256(
                _mm256_add_ps(_mm256_castsi256_ps(a.hi), _mm256_castsi256_ps(b.hi)))};
}

inline __m256i exponent_field(__m256i x) {
    return _mm256_and_si256(x, _mm256_set1_epi32(0x7F800000));
}

// The largest exponent field (still at bit 23) in every lane.
inline __m256i shared_field(const Block &block) {
    __m256i most = _mm256_max_epi32(exponent_field(block.lo), exponent_field(block.hi));
    most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4E));
    return _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xB1));
}

template <int Bits>
inline __m256i magnitude(__m256i x, __m256i shared) {
    constexpr int kShift = 24 - Bits;
    const __m256i field = exponent_field(x);
    const __m256i down = _mm256_srli_epi32(_mm256_sub_epi32(shared, field), 23);
    const __m256i whole = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFF)),
                                          _mm256_set1_epi32(0x800000));
    const __m256i flushed = _mm256_cmpeq_epi32(field, _mm256_setzero_si256());
    const __m256i mantissa = _mm256_srlv_epi32(_mm256_andnot_si256(flushed, whole), down);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(mantissa, kShift), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(
        _mm256_add_epi32(mantissa, _mm256_set1_epi32((1 << (kShift - 1)) - 1)), odd);
    return _mm256_min_epi32(_mm256_srli_epi32(sum, kShift), _mm256_set1_epi32((1 << Bits) - 1));
}

template <int Bits>
inline __m256i quantize(__m256i x, __m256i shared) {
    const __m256i size = magnitude<Bits>(x, shared);
    const __m256i bias = _mm256_sub_epi32(shared, _mm256_set1_epi32((127 + Bits - 1) << 23));
    const __m256i bits = _mm256_castps_si256(_mm256_cvtepi32_ps(size));
    const __m256i sign = _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    const __m256i value = _mm256_or_si256(_mm256_add_epi32(bits, bias), sign);
    return _mm256_and_si256(value, _mm256_cmpgt_epi32(size, _mm256_setzero_si256()));
}

// The same in float arithmetic, for shared exponents in [24, 230]: adding and subtracting a number
// whose last place is the code's rounds to nearest even, and makes every zero positive. Bits that
// the shift would lose are masked first; what is shifted out whole stays below half a place.
template <int Bits>
inline __m256i quantize_middle(__m256i x, __m256i shared) {
    const __m256i down = _mm256_srli_epi32(_mm256_sub_epi32(shared, exponent_field(x)), 23);
    const __m256i kept = _mm256_and_si256(x, _mm256_sllv_epi32(_mm256_set1_epi32(-1), down));
    const __m256 magic = _mm256_castsi256_ps(
        _mm256_add_epi32(shared, _mm256_set1_epi32(((24 - Bits) << 23) | 0x400000)));
    const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(kept), magic);
    const __m256 rounded = _mm256_sub_ps(sum, magic);
    const __m256 most = _mm256_castsi256_ps(
        _mm256_or_si256(shared, _mm256_set1_epi32(((1 << (Bits - 1)) - 1) << (24 - Bits))));
    const __m256 least = _mm256_xor_ps(most, _mm256_set1_ps(-0.0f));
    return _mm256_castps_si256(_mm256_max_ps(_mm256_min_ps(rounded, most), least));
}

template <int Bits>
inline Block quantize(const Block &block) {
    const __m256i shared = shared_field(block);
    const std::uint32_t exponent =
        static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(shared))) >> 23;
    if (exponent - 24u <= 206u)
        return {quantize_middle<Bits>(block.lo, shared), quantize_middle<Bits>(block.hi, shared)};
    return {quantize<Bits>(block.lo, shared), quantize<Bits>(block.hi, shared)};
}

template <int Bits>
inline __m256i signed_code(__m256i x, __m256i shared) {
    const __m256i size = magnitude<Bits>(x, shared);
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(x, 31), Bits);
    const __m256i zero = _mm256_cmpeq_epi32(size, _mm256_setzero_si256());
    return _mm256_or_si256(size, _mm256_andnot_si256(zero, sign));
}

template <int Bits>
inline void encode(const Block &block, std::uint8_t *exponent, std::uint8_t *codes) {
    const __m256i shared = shared_field(block);
    *exponent = static_cast<std::uint8_t>(
        static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(shared))) >> 23);
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(signed_code<Bits>(block.lo, shared), signed_code<Bits>(block.hi, shared)),
        0xD8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    if constexpr (Bits == 7) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(codes), bytes);
    } else if constexpr (Bits == 3) {
        const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x1001));
        _mm_storel_epi64(reinterpret_cast<__m128i *>(codes), _mm_packus_epi16(pairs, pairs));
    } else {
        const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x0401));
        __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(0x00100001));
        fours = _mm_packs_epi32(fours, fours);
        const int packed = _mm_cvtsi128_si32(_mm_packus_epi16(fours, fours));
        std::memcpy(codes, &packed, 4);
    }
}

template <int Bits>
inline __m256i value_of(__m256i code, __m256i bias) {
    const __m256i size = _mm256_and_si256(code, _mm256_set1_epi32((1 << Bits) - 1));
    const __m256i bits = _mm256_castps_si256(_mm256_cvtepi32_ps(size));
    const __m256i moved = _mm256_add_epi32(bits, bias);
    const __m256i normal =
        _mm256_and_si256(_mm256_cmpgt_epi32(moved, _mm256_set1_epi32(0x007FFFFF)),
                         _mm256_cmpgt_epi32(size, _mm256_setzero_si256()));
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(code, Bits), 31);
    return _mm256_and_si256(_mm256_or_si256(moved, sign), normal);
}

template <int Bits>
inline Block decode(std::uint8_t exponent, const std::uint8_t *codes) {
    const __m256i bias = _mm256_set1_epi32((static_cast<int>(exponent) - (127 + Bits - 1)) * (1 << 23));
    __m256i lo, hi;
    if constexpr (Bits == 7) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(codes));
        lo = _mm256_cvtepu8_epi32(bytes);
        hi = _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8));
    } else if constexpr (Bits == 3) {
        int words[2];
        std::memcpy(words, codes, 8);
        const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        const __m256i nibble = _mm256_set1_epi32(15);
        lo = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(words[0]), shifts), nibble);
        hi = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(words[1]), shifts), nibble);
    } else {
        int word;
        std::memcpy(&word, codes, 4);
        const __m256i all = _mm256_set1_epi32(word);
        const __m256i two = _mm256_set1_epi32(3);
        lo = _mm256_and_si256(
            _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)), two);
        hi = _mm256_and_si256(
            _mm256_srlv_epi32(all, _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30)), two);
    }
    return {value_of<Bits>(lo, bias), value_of<Bits>(hi, bias)};
}

inline void narrow_bf16(const Block &block, std::uint8_t *dst) {
    const Block rounded = round_bf16(block);
    const __m256i words = _mm256_packus_epi32(_mm256_srli_epi32(rounded.lo, 16),
                                              _mm256_srli_epi32(rounded.hi, 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), _mm256_permute4x64_epi64(words, 0xD8));
}

inline Block widen_bf16(const std::uint8_t *src) {
    const __m128i *p = reinterpret_cast<const __m128i *>(src);
    return {_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16),
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p + 1)), 16)};
}
