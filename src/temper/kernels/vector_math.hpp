// Eight float32 lanes and the functions on them, accurate to about one ulp.
// Included once per instruction set by eltwise_isa.hpp, inside that set's namespace: on AVX2 a
// vector is one register, elsewhere the compiler splits the same code into what the target has.
//
// The polynomial and rational coefficients of exp, log, tanh and erf are published figures: the
// Cephes mathematical library (S. Moshier), Eigen's packet math, and N. Juffa's erf.

typedef float f8 __attribute__((vector_size(32)));
typedef std::int32_t i8 __attribute__((vector_size(32)));
typedef std::uint32_t u8 __attribute__((vector_size(32)));

inline f8 load(const float *p) {
    f8 v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float *p, f8 v) { std::memcpy(p, &v, sizeof v); }
inline f8 splat(float x) { return f8{x, x, x, x, x, x, x, x}; }

inline f8 fma(f8 a, f8 b, f8 c) {
#ifdef TEMPER_AVX2
    return (f8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}
inline f8 fma(f8 a, float b, float c) { return fma(a, splat(b), splat(c)); }
inline f8 fma(f8 a, f8 b, float c) { return fma(a, b, splat(c)); }

// maximum and minimum as torch has them: NaN wins.
inline f8 vmax(f8 a, f8 b) {
    f8 m = a > b ? a : b;
    return a != a ? a : m;
}
inline f8 vmin(f8 a, f8 b) {
    f8 m = a < b ? a : b;
    return a != a ? a : m;
}
inline f8 vabs(f8 x) { return (f8)((u8)x & 0x7fffffffu); }
inline f8 vsqrt(f8 x) {
#ifdef TEMPER_AVX2
    return (f8)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < 8; ++i) x[i] = std::sqrt(x[i]);
    return x;
#endif
}

// Nearest bfloat16, ties to even; every NaN becomes 0x7FC0 (FACTS 3.3).
inline f8 round_bf16(f8 x) {
    u8 bits = (u8)x;
    u8 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    return x != x ? (f8)(u8{} + 0x7fc00000u) : (f8)rounded;
}

inline f8 vexp(f8 x) {
    // 2^n * e^r with |r| <= ln2 / 2; 2^n in two factors so that denormals and infinity come out.
    x = x > 89.0f ? splat(89.0f) : x;
    x = x < -104.0f ? splat(-104.0f) : x;
    const f8 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    f8 shifted = fma(x, splat(1.44269504f), magic);
    f8 n = shifted - magic;
    f8 r = fma(n, splat(-0.693145752f), x);
    r = fma(n, splat(-1.42860677e-6f), r);
    f8 p = fma(r, 1.38888889e-3f, 8.33333377e-3f);
    p = fma(p, r, 4.16666679e-2f);
    p = fma(p, r, 1.66666672e-1f);
    p = fma(p, r, 0.5f);
    p = fma(p, r * r, r) + 1.0f;
    i8 whole = (i8)shifted - 0x4b400000;
    i8 half = whole >> 1;
    f8 first = (f8)((half + 127) << 23);
    f8 second = (f8)((whole - half + 127) << 23);
    return p * first * second;
}

inline f8 vlog(f8 x) {
    const f8 input = x;
    i8 tiny = x < 1.17549435e-38f;
    x = tiny ? x * 8388608.0f : x;
    i8 bits = (i8)x;
    // Mantissa in [sqrt(1/2), sqrt(2)).
    i8 exponent = (bits - 0x3f3504f3) >> 23;
    f8 m = (f8)(bits - (exponent << 23));
    f8 e = __builtin_convertvector(exponent, f8) - (tiny ? splat(23.0f) : splat(0.0f));
    f8 f = m - 1.0f;
    f8 p = fma(f, 7.0376836292e-2f, -1.1514610310e-1f);
    p = fma(p, f, 1.1676998740e-1f);
    p = fma(p, f, -1.2420140846e-1f);
    p = fma(p, f, 1.4249322787e-1f);
    p = fma(p, f, -1.6668057665e-1f);
    p = fma(p, f, 2.0000714765e-1f);
    p = fma(p, f, -2.4999993993e-1f);
    p = fma(p, f, 3.3333331174e-1f);
    f8 square = f * f;
    f8 y = p * f * square;
    y = fma(e, splat(-2.12194440e-4f), y);
    y = fma(square, splat(-0.5f), y);
    f8 result = fma(e, splat(0.693359375f), f + y);
    const float infinity = std::numeric_limits<float>::infinity();
    result = input == infinity ? splat(infinity) : result;
    result = input == 0.0f ? splat(-infinity) : result;
    return input >= 0.0f ? result : splat(std::numeric_limits<float>::quiet_NaN());
}

inline f8 vlog1p(f8 x) {
    // log(1 + x) with the rounding error of 1 + x put back.
    f8 u = x + 1.0f;
    f8 fixed = vlog(u) + (x - (u - 1.0f)) / u;
    f8 plain = x == std::numeric_limits<float>::infinity() ? x : vlog(u);
    i8 whole = (u == u) & (vabs(u) < std::numeric_limits<float>::infinity()) & (u > 0.0f);
    return whole ? fixed : plain;
}

inline f8 vtanh(f8 x) {
    f8 a = vabs(x);
    f8 s = x * x;
    f8 p = fma(s, -5.70498872745e-3f, 2.06390887954e-2f);
    p = fma(p, s, -5.37397155531e-2f);
    p = fma(p, s, 1.33314422036e-1f);
    p = fma(p, s, -3.33332819422e-1f);
    f8 small = fma(p * s, x, x);
    f8 large = 1.0f - 2.0f / (vexp(a + a) + 1.0f);
    large = (f8)((u8)large | ((u8)x & 0x80000000u));
    return a < 0.625f ? small : large;
}

inline f8 vexpm1(f8 x) {
    f8 t = vtanh(x * 0.5f);
    f8 small = 2.0f * t / (1.0f - t);
    return x < 1.0f ? small : vexp(x) - 1.0f;
}

// erf near zero is x + x * near_zero(x^2); farther out 1 - exp(far(|x|)).
inline f8 erf_near(f8 x) {
    f8 s = x * x;
    f8 r = fma(s, -5.96761703e-4f, 4.99119423e-3f);
    r = fma(r, s, -2.67681349e-2f);
    r = fma(r, s, 1.12819925e-1f);
    r = fma(r, s, -3.76125336e-1f);
    r = fma(r, s, 1.28379166e-1f);
    return fma(r, x, x);
}
inline f8 erf_far_exponential(f8 x) {
    f8 t = vabs(x);
    t = t > 10.0f ? splat(10.0f) : t;
    f8 s = t * t;
    f8 r = fma(t, -1.72853470e-5f, 3.83197126e-4f);
    f8 u = fma(t, -3.88396438e-3f, 2.42546219e-2f);
    r = fma(r, s, u);
    r = fma(r, t, -1.06777877e-1f);
    r = fma(r, t, -6.34846687e-1f);
    r = fma(r, t, -1.28717512e-1f);
    r = fma(r, t, -t);
    return vexp(r);
}
constexpr float kErfSplit = 0.927734375f;

inline f8 verf(f8 x) {
    f8 far = 1.0f - erf_far_exponential(x);
    far = (f8)((u8)far | ((u8)x & 0x80000000u));
    f8 result = vabs(x) > kErfSplit ? far : erf_near(x);
    return x != x ? x : result;
}

inline f8 vsigmoid(f8 x) { return 1.0f / (1.0f + vexp(-x)); }
inline f8 vsilu(f8 x) { return x / (1.0f + vexp(-x)); }
// erf as one rational function, within 4e-7 of the truth: four times faster than verf.
inline f8 erf_rational(f8 x) {
    x = x > 4.0f ? splat(4.0f) : x;
    x = x < -4.0f ? splat(-4.0f) : x;
    f8 s = x * x;
    f8 p = fma(s, -2.72614226e-10f, 2.77068142e-8f);
    p = fma(p, s, -2.10102402e-6f);
    p = fma(p, s, -5.69250639e-5f);
    p = fma(p, s, -7.34990630e-4f);
    p = fma(p, s, -2.95459981e-3f);
    p = fma(p, s, -1.60960333e-2f);
    f8 q = fma(s, -1.45660718e-5f, -2.13374055e-4f);
    q = fma(q, s, -1.68282697e-3f);
    q = fma(q, s, -7.37332917e-3f);
    q = fma(q, s, -1.42647391e-2f);
    return x * p / q;
}
inline f8 vgelu(f8 x) {
    f8 half = 0.5f * x;
    f8 result = fma(half, erf_rational(x * 0.707106781f), half);
    return x == -std::numeric_limits<float>::infinity() ? splat(-0.0f) : result;
}
inline f8 vgelu_tanh(f8 x) {
    f8 inner = 0.797884561f * fma(x * x * x, splat(0.044715f), x);
    return 0.5f * x * (1.0f + vtanh(inner));
}
inline f8 vsoftplus(f8 x, float beta, float threshold) {
    f8 z = x * beta;
    return z > threshold ? x : vlog1p(vexp(z)) / beta;
}
inline f8 vmish(f8 x) {
    // tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)
    f8 e = vexp(x > 20.0f ? splat(20.0f) : x);
    f8 n = e * (e + 2.0f);
    return x > 20.0f ? x : x * n / (n + 2.0f);
}
inline f8 vlogsigmoid(f8 x) { return vmin(x, splat(0.0f)) - vlog1p(vexp(-vabs(x))); }
inline f8 one_if(i8 condition) { return condition ? splat(1.0f) : splat(0.0f); }

#ifdef TEMPER_AVX2
inline f8 vfloor(f8 x) { return (f8)_mm256_floor_ps((__m256)x); }
inline f8 vceil(f8 x) { return (f8)_mm256_ceil_ps((__m256)x); }
inline f8 vtrunc(f8 x) { return (f8)_mm256_round_ps((__m256)x, 3 | 8); }
inline f8 vround(f8 x) { return (f8)_mm256_round_ps((__m256)x, 0 | 8); }
#else
inline f8 vfloor(f8 x) {
    for (int i = 0; i < 8; ++i) x[i] = std::floor(x[i]);
    return x;
}
inline f8 vceil(f8 x) {
    for (int i = 0; i < 8; ++i) x[i] = std::ceil(x[i]);
    return x;
}
inline f8 vtrunc(f8 x) {
    for (int i = 0; i < 8; ++i) x[i] = std::trunc(x[i]);
    return x;
}
inline f8 vround(f8 x) {
    for (int i = 0; i < 8; ++i) x[i] = std::nearbyint(x[i]);
    return x;
}
#endif

inline float sum_lanes(f8 v) {
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}
inline float max_lanes(f8 v) {
    float m = v[0];
    for (int i = 1; i < 8; ++i) m = (v[i] > m || v[i] != v[i]) ? v[i] : m;
    return m;
}
