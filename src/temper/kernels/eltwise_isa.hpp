// The fused elementwise, row and pool kernels for one instruction set; included once for each.
// A block of values goes through all functions of a chain while it is in the first-level cache.

namespace temper {
namespace TEMPER_ISA {

#include "vector_math.hpp"

constexpr std::int64_t kBlock = 1024;

// dst[i] = f(a[i]); reads and writes exactly n values, whatever n is.
template <bool Round, class F>
inline void map1_loop(float *dst, const float *a, std::int64_t n, const F &f) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f8 v = f(load(a + i));
        store(dst + i, Round ? round_bf16(v) : v);
    }
    if (i < n) {
        float tail[8] = {};
        std::memcpy(tail, a + i, (n - i) * sizeof(float));
        f8 v = f(load(tail));
        store(tail, Round ? round_bf16(v) : v);
        std::memcpy(dst + i, tail, (n - i) * sizeof(float));
    }
}
template <class F>
inline void map1(float *dst, const float *a, std::int64_t n, bool round, const F &f) {
    round ? map1_loop<true>(dst, a, n, f) : map1_loop<false>(dst, a, n, f);
}

template <bool Round, class F>
inline void map2_loop(float *dst, const float *a, const float *b, std::int64_t n, const F &f) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f8 v = f(load(a + i), load(b + i));
        store(dst + i, Round ? round_bf16(v) : v);
    }
    if (i < n) {
        float x[8] = {}, y[8] = {};
        std::memcpy(x, a + i, (n - i) * sizeof(float));
        std::memcpy(y, b + i, (n - i) * sizeof(float));
        f8 v = f(load(x), load(y));
        store(x, Round ? round_bf16(v) : v);
        std::memcpy(dst + i, x, (n - i) * sizeof(float));
    }
}
template <class F>
inline void map2(float *dst, const float *a, const float *b, std::int64_t n, bool round,
                 const F &f) {
    round ? map2_loop<true>(dst, a, b, n, f) : map2_loop<false>(dst, a, b, n, f);
}

inline void run_stage(const Stage &s, float *dst, const float *a, std::int64_t n, bool round) {
    const float p = s.first, q = s.second;
    const float inf = std::numeric_limits<float>::infinity();
#define TEMPER_CASE(name, expression) \
    case Unary::name: map1(dst, a, n, round, [=](f8 x) -> f8 { return expression; }); break;
    switch (s.function) {
        TEMPER_CASE(relu, x < 0.0f ? splat(0.0f) : x)
        TEMPER_CASE(relu6, vmin(vmax(x, splat(0.0f)), splat(6.0f)))
        TEMPER_CASE(leaky_relu, x > 0.0f ? x : x * p)
        TEMPER_CASE(elu, x > 0.0f ? x : p * vexpm1(x))
        TEMPER_CASE(celu, x > 0.0f ? x : p * vexpm1(x / p))
        TEMPER_CASE(selu, 1.05070098f * (x > 0.0f ? x : 1.67326324f * vexpm1(x)))
        TEMPER_CASE(gelu, vgelu(x))
        TEMPER_CASE(gelu_tanh, vgelu_tanh(x))
        TEMPER_CASE(silu, vsilu(x))
        TEMPER_CASE(mish, vmish(x))
        TEMPER_CASE(sigmoid, vsigmoid(x))
        TEMPER_CASE(logsigmoid, vlogsigmoid(x))
        TEMPER_CASE(hardsigmoid, vmin(vmax(x + 3.0f, splat(0.0f)), splat(6.0f)) / 6.0f)
        TEMPER_CASE(hardswish, x * vmin(vmax(x + 3.0f, splat(0.0f)), splat(6.0f)) / 6.0f)
        TEMPER_CASE(clamp, vmin(vmax(x, splat(p)), splat(q)))
        TEMPER_CASE(tanh, vtanh(x))
        TEMPER_CASE(softplus, vsoftplus(x, p, q))
        TEMPER_CASE(softsign, x / (1.0f + vabs(x)))
        TEMPER_CASE(exp, vexp(x))
        TEMPER_CASE(expm1, vexpm1(x))
        TEMPER_CASE(log, vlog(x))
        TEMPER_CASE(log1p, vlog1p(x))
        TEMPER_CASE(sqrt, vsqrt(x))
        TEMPER_CASE(rsqrt, 1.0f / vsqrt(x))
        TEMPER_CASE(reciprocal, 1.0f / x)
        TEMPER_CASE(square, x * x)
        TEMPER_CASE(cube, x * x * x)
        TEMPER_CASE(abs, vabs(x))
        TEMPER_CASE(neg, -x)
        TEMPER_CASE(sign, x != x ? x : (one_if(x > 0.0f) - one_if(x < 0.0f)))
        TEMPER_CASE(floor, vfloor(x))
        TEMPER_CASE(ceil, vceil(x))
        TEMPER_CASE(round, vround(x))
        TEMPER_CASE(trunc, vtrunc(x))
        TEMPER_CASE(frac, x - vtrunc(x))
        TEMPER_CASE(erf, verf(x))
        TEMPER_CASE(logical_not, one_if(x == 0.0f))
        TEMPER_CASE(isnan, one_if(x != x))
        TEMPER_CASE(isinf, one_if(vabs(x) == inf))
        TEMPER_CASE(isfinite, one_if(vabs(x) < inf))
        TEMPER_CASE(threshold, x > p ? x : splat(q))
        TEMPER_CASE(add, x + p)
        TEMPER_CASE(rsub, p - x)
        TEMPER_CASE(mul, x * p)
        TEMPER_CASE(div, x / p)
        TEMPER_CASE(rdiv, p / x)
        TEMPER_CASE(eq, one_if(x == p))
        TEMPER_CASE(ne, one_if(x != p))
        TEMPER_CASE(lt, one_if(x < p))
        TEMPER_CASE(le, one_if(x <= p))
        TEMPER_CASE(gt, one_if(x > p))
        TEMPER_CASE(ge, one_if(x >= p))
        default: map1(dst, a, n, round, [](f8 x) { return x; }); break;
    }
#undef TEMPER_CASE
}

inline void run_binary(Binary function, float *dst, const float *a, const float *b,
                       std::int64_t n, bool round) {
#define TEMPER_CASE(name, expression) \
    case Binary::name: map2(dst, a, b, n, round, [](f8 x, f8 y) -> f8 { return expression; }); break;
    switch (function) {
        TEMPER_CASE(add, x + y)
        TEMPER_CASE(sub, x - y)
        TEMPER_CASE(mul, x * y)
        TEMPER_CASE(div, x / y)
        TEMPER_CASE(maximum, y != y ? y : vmax(x, y))
        TEMPER_CASE(minimum, y != y ? y : vmin(x, y))
        TEMPER_CASE(eq, one_if(x == y))
        TEMPER_CASE(ne, one_if(x != y))
        TEMPER_CASE(lt, one_if(x < y))
        TEMPER_CASE(le, one_if(x <= y))
        TEMPER_CASE(gt, one_if(x > y))
        TEMPER_CASE(ge, one_if(x >= y))
        TEMPER_CASE(logical_and, one_if((x != 0.0f) & (y != 0.0f)))
        TEMPER_CASE(logical_or, one_if((x != 0.0f) | (y != 0.0f)))
        TEMPER_CASE(logical_xor, one_if((x != 0.0f) ^ (y != 0.0f)))
        TEMPER_CASE(squared_difference, (x - y) * (x - y))
        default: break;
    }
#undef TEMPER_CASE
}

inline void run_ternary(Binary function, float value, float *dst, const float *a, const float *b,
                        const float *c, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 8) {  // operands are whole blocks: no tail to mind
        f8 x = load(a + i), y = load(b + i), z = load(c + i), v = x;
        switch (function) {
            case Binary::where: v = x != 0.0f ? y : z; break;
            case Binary::addcmul: v = x + value * y * z; break;
            case Binary::addcdiv: v = x + value * y / z; break;
            case Binary::lerp: v = x + z * (y - x); break;
            case Binary::clamp: v = vmin(vmax(x, y), z); break;
            default: break;
        }
        store(dst + i, v);
    }
}

// The operand's values as a contiguous run: in place, or gathered into the buffer.
inline const float *fetch(const float *p, std::int64_t stride, float *buffer, std::int64_t n) {
    if (stride == 1) return p;
    if (stride == 0) {
        std::fill(buffer, buffer + n, *p);
    } else {
        for (std::int64_t i = 0; i < n; ++i) buffer[i] = p[i * stride];
    }
    return buffer;
}
inline const float *run_chain(const std::vector<Stage> &chain, const float *p, float *buffer,
                              std::int64_t n) {
    for (const Stage &s : chain) {
        run_stage(s, buffer, p, n, false);
        p = buffer;
    }
    return p;
}

inline void run_block(const Plan &plan, float *out, const float *const *in, std::int64_t n) {
    alignas(32) float first[kBlock], second[kBlock];
    const int last = plan.dims - 1;
    const float *a = fetch(in[0], plan.stride[0][last], first, n);
    a = run_chain(plan.lhs, a, first, n);
    const std::size_t posts = plan.post.size();
    if (plan.operands == 2) {
        const float *b = fetch(in[1], plan.stride[1][last], second, n);
        b = run_chain(plan.rhs, b, second, n);
        float *dst = posts ? first : out;
        run_binary(plan.function, dst, a, b, n, !posts && plan.round);
        if (!posts) return;
        a = first;
    } else if (plan.operands == 3) {
        alignas(32) float third[kBlock];
        const float *b = fetch(in[1], plan.stride[1][last], second, n);
        const float *c = fetch(in[2], plan.stride[2][last], third, n);
        if (a != first) std::memcpy(first, a, n * sizeof(float));
        if (b != second) std::memcpy(second, b, n * sizeof(float));
        if (c != third) std::memcpy(third, c, n * sizeof(float));
        run_ternary(plan.function, plan.value, first, first, second, third, n);
        a = first;
    }
    if (!posts) {
        map1(out, a, n, plan.round, [](f8 x) { return x; });
        return;
    }
    for (std::size_t s = 0; s < posts; ++s) {
        const bool final = s + 1 == posts;
        run_stage(plan.post[s], final ? out : first, a, n, final && plan.round);
        a = first;
    }
}

void run_plan(const Plan &plan) {
    const std::int64_t inner = plan.size[plan.dims - 1];
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < plan.dims; ++d) rows *= plan.size[d];
    const std::int64_t chunks = (inner + kBlock - 1) / kBlock;
    // A chain with exponentials is worth a second thread sooner than a plain addition.
    const std::size_t weight = 1 + 4 * (costly(plan.lhs) + costly(plan.rhs) + costly(plan.post));
    parallel_for(rows * chunks, rows * inner * weight, [&](std::size_t begin, std::size_t end) {
        std::int64_t row = begin / chunks, chunk = begin % chunks;
        Walk walk(plan, plan.dims - 1, row);
        for (std::size_t task = begin; task < end; ++task) {
            const std::int64_t start = chunk * kBlock;
            const float *in[kMaxOperands];
            for (int k = 0; k < plan.operands; ++k)
                in[k] = walk.in[k] + start * plan.stride[k][plan.dims - 1];
            run_block(plan, plan.out + row * inner + start, in, std::min(kBlock, inner - start));
            if (++chunk == chunks) {
                chunk = 0;
                ++row;
                walk.next();
            }
        }
    });
}

#include "row_kernels.hpp"

}  // namespace TEMPER_ISA
}  // namespace temper
