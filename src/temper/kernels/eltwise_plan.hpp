// The records of the fused elementwise and row kernels; built once, run at every replay.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace temper {

constexpr int kMaxOperands = 4;
constexpr int kMaxDims = 6;

// Functions of one operand. Python learns the numbers from the module, so order is free.
#define TEMPER_UNARY(X)                                                                          \
    X(identity) X(relu) X(relu6) X(leaky_relu) X(elu) X(celu) X(selu) X(gelu) X(gelu_tanh)       \
    X(silu) X(mish) X(sigmoid) X(logsigmoid) X(hardsigmoid) X(hardswish) X(clamp) X(tanh)        \
    X(softplus) X(softsign) X(exp) X(expm1) X(log) X(log1p) X(sqrt) X(rsqrt) X(reciprocal)       \
    X(square) X(cube) X(abs) X(neg) X(sign) X(floor) X(ceil) X(round) X(trunc) X(frac) X(erf)    \
    X(logical_not) X(isnan) X(isinf) X(isfinite) X(threshold) X(add) X(rsub) X(mul) X(div)       \
    X(rdiv) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)
// Functions of two operands, then of three.
#define TEMPER_BINARY(X)                                                                         \
    X(none) X(add) X(sub) X(mul) X(div) X(maximum) X(minimum) X(eq) X(ne) X(lt) X(le) X(gt)      \
    X(ge) X(logical_and) X(logical_or) X(logical_xor) X(squared_difference) X(where) X(addcmul)  \
    X(addcdiv) X(lerp) X(clamp)

#define TEMPER_NAME(name) name,
enum class Unary : int { TEMPER_UNARY(TEMPER_NAME) count };
enum class Binary : int { TEMPER_BINARY(TEMPER_NAME) count };
#undef TEMPER_NAME

struct Stage {
    Unary function;
    float first, second;
};

// How many functions of a chain cost several times an addition.
inline std::size_t costly(const std::vector<Stage> &chain) {
    std::size_t count = 0;
    for (const Stage &stage : chain) {
        switch (stage.function) {
            case Unary::elu: case Unary::celu: case Unary::selu: case Unary::gelu:
            case Unary::gelu_tanh: case Unary::silu: case Unary::mish: case Unary::sigmoid:
            case Unary::logsigmoid: case Unary::tanh: case Unary::softplus: case Unary::exp:
            case Unary::expm1: case Unary::log: case Unary::log1p: case Unary::erf:
                ++count;
                break;
            default: break;
        }
    }
    return count;
}

// out[i...] = round(post(function(lhs(a), rhs(b), c))); dims are outermost first, strides
// count elements, and the output is contiguous.
struct Plan {
    float *out = nullptr;
    int operands = 0;
    const float *in[kMaxOperands] = {};
    int dims = 0;
    std::int64_t size[kMaxDims] = {};
    std::int64_t stride[kMaxOperands][kMaxDims] = {};
    std::vector<Stage> lhs, rhs, post;
    Binary function = Binary::none;
    float value = 1.0f;
    bool round = false;
};

// Rows of `columns` contiguous values: normalisations, softmax, rotary embedding. The outer
// dimensions and the operands' strides over them are the plan's. attention is a softmax that gives
// zeros for a row of nothing but minus infinity.
enum class RowKind : int { layer_norm, rms_norm, softmax, rotary, attention };
struct RowPlan : Plan {
    RowKind kind = RowKind::softmax;
    std::int64_t columns = 0;
    float eps = 0.0f, scale = 1.0f;
    const float *weight = nullptr, *bias = nullptr;
    bool mask_splat = false;  // softmax: the mask has one value a row
};

// A pool over (N, H, W, C): the maximum, or the sum times the window's weight.
struct PoolPlan {
    float *out = nullptr;
    const float *in = nullptr;
    std::int64_t batch, in_h, in_w, channels, out_h, out_w;
    std::int64_t kernel_h, kernel_w, stride_h, stride_w, top, left, dilation_h, dilation_w;
    bool maximum, include_pad, round;
    std::int64_t bottom, right;
    float divisor;  // 0: the size of the window
};

// Walks the outer dimensions of a plan from a given row on.
struct Walk {
    const Plan &plan;
    int outer;
    std::int64_t index[kMaxDims] = {};
    const float *in[kMaxOperands];

    Walk(const Plan &p, int outer_dims, std::int64_t row) : plan(p), outer(outer_dims) {
        for (int k = 0; k < p.operands; ++k) in[k] = p.in[k];
        for (int d = outer - 1; d >= 0; --d) {
            index[d] = row % p.size[d];
            row /= p.size[d];
            for (int k = 0; k < p.operands; ++k) in[k] += index[d] * p.stride[k][d];
        }
    }
    void next() {
        for (int d = outer - 1; d >= 0; --d) {
            for (int k = 0; k < plan.operands; ++k) in[k] += plan.stride[k][d];
            if (++index[d] < plan.size[d]) return;
            for (int k = 0; k < plan.operands; ++k) in[k] -= plan.size[d] * plan.stride[k][d];
            index[d] = 0;
        }
    }
};

}  // namespace temper
