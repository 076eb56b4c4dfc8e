// Fused elementwise chains, row normalisations and pools with bfloat16 rounding in the same pass.
// Python builds a plan once (shapes, strides, addresses, functions) and calls it without arguments.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "eltwise_plan.hpp"
#include "parallel.hpp"

#define TEMPER_ISA portable
#include "eltwise_isa.hpp"
#undef TEMPER_ISA

#if defined(__x86_64__) && defined(__GNUC__)
#define TEMPER_HAS_AVX2 1
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TEMPER_AVX2 1
#define TEMPER_ISA avx2
#include "eltwise_isa.hpp"
#undef TEMPER_ISA
#undef TEMPER_AVX2
#pragma GCC pop_options
#endif

namespace nb = nanobind;
using namespace temper;

namespace {

bool has_avx2() {
#ifdef TEMPER_HAS_AVX2
    static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return found;
#else
    return false;
#endif
}

#ifdef TEMPER_HAS_AVX2
#define TEMPER_DISPATCH(function, plan) \
    (has_avx2() ? avx2::function(plan) : portable::function(plan))
#else
#define TEMPER_DISPATCH(function, plan) portable::function(plan)
#endif

using Chain = std::vector<std::tuple<int, float, float>>;
using Strides = std::vector<std::vector<std::int64_t>>;

std::vector<Stage> stages(const Chain &chain) {
    std::vector<Stage> result;
    for (const auto &[function, first, second] : chain) {
        if (function < 0 || function >= static_cast<int>(Unary::count))
            throw std::invalid_argument("unknown elementwise function");
        result.push_back({static_cast<Unary>(function), first, second});
    }
    return result;
}

void fill_shape(Plan &plan, std::uintptr_t out, const std::vector<std::uintptr_t> &in,
                const std::vector<std::int64_t> &size, const Strides &strides) {
    if (size.size() > kMaxDims || in.size() > kMaxOperands || strides.size() != in.size())
        throw std::invalid_argument("too many dimensions or operands");
    plan.out = reinterpret_cast<float *>(out);
    plan.operands = static_cast<int>(in.size());
    plan.dims = static_cast<int>(size.size());
    std::copy(size.begin(), size.end(), plan.size);
    for (std::size_t k = 0; k < in.size(); ++k) {
        if (strides[k].size() != size.size()) throw std::invalid_argument("a stride is missing");
        plan.in[k] = reinterpret_cast<const float *>(in[k]);
        std::copy(strides[k].begin(), strides[k].end(), plan.stride[k]);
    }
}

}  // namespace

void bind_eltwise(nb::module_ &m) {
    nb::dict unary, binary;
#define TEMPER_ENTRY(name) unary[#name] = static_cast<int>(Unary::name);
    TEMPER_UNARY(TEMPER_ENTRY)
#undef TEMPER_ENTRY
#define TEMPER_ENTRY(name) binary[#name] = static_cast<int>(Binary::name);
    TEMPER_BINARY(TEMPER_ENTRY)
#undef TEMPER_ENTRY
    m.attr("UNARY_CODES") = unary;
    m.attr("BINARY_CODES") = binary;

    nb::class_<Plan>(m, "ElementwisePlan", nb::dynamic_attr())
        .def("__init__",
             [](Plan *self, std::uintptr_t out, const std::vector<std::uintptr_t> &in,
                const std::vector<std::int64_t> &size, const Strides &strides, const Chain &lhs,
                const Chain &rhs, int function, float value, const Chain &post, bool round) {
                 new (self) Plan();
                 fill_shape(*self, out, in, size, strides);
                 if (self->dims < 1) throw std::invalid_argument("a plan needs a dimension");
                 if (function < 0 || function >= static_cast<int>(Binary::count))
                     throw std::invalid_argument("unknown elementwise function");
                 self->lhs = stages(lhs);
                 self->rhs = stages(rhs);
                 self->post = stages(post);
                 self->function = static_cast<Binary>(function);
                 self->value = value;
                 self->round = round;
             })
        .def("__call__", [](const Plan &p) { TEMPER_DISPATCH(run_plan, p); },
             nb::call_guard<nb::gil_scoped_release>())
        .def("run_from",
             [](Plan &p, std::uintptr_t first) {
                 p.in[0] = reinterpret_cast<const float *>(first);
                 TEMPER_DISPATCH(run_plan, p);
             },
             nb::call_guard<nb::gil_scoped_release>());

    nb::class_<RowPlan>(m, "RowPlan", nb::dynamic_attr())
        .def("__init__",
             [](RowPlan *self, int kind, std::uintptr_t out, const std::vector<std::uintptr_t> &in,
                const std::vector<std::int64_t> &size, const Strides &strides,
                std::int64_t columns, std::uintptr_t weight, std::uintptr_t bias, float eps,
                float scale, bool mask_splat, const Chain &post, bool round) {
                 new (self) RowPlan();
                 fill_shape(*self, out, in, size, strides);
                 self->kind = static_cast<RowKind>(kind);
                 self->columns = columns;
                 self->weight = reinterpret_cast<const float *>(weight);
                 self->bias = reinterpret_cast<const float *>(bias);
                 self->eps = eps;
                 self->scale = scale;
                 self->mask_splat = mask_splat;
                 self->post = stages(post);
                 self->round = round;
             })
        .def("__call__", [](const RowPlan &p) { TEMPER_DISPATCH(run_rows, p); },
             nb::call_guard<nb::gil_scoped_release>());

    nb::class_<PoolPlan>(m, "PoolPlan", nb::dynamic_attr())
        .def("__init__",
             [](PoolPlan *self, std::uintptr_t out, std::uintptr_t in,
                const std::vector<std::int64_t> &n, bool maximum, bool include_pad, float divisor,
                bool round) {
                 if (n.size() != 16) throw std::invalid_argument("a pool has sixteen sizes");
                 new (self) PoolPlan{reinterpret_cast<float *>(out),
                                     reinterpret_cast<const float *>(in),
                                     n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9],
                                     n[10], n[11], n[12], n[13], maximum, include_pad, round,
                                     n[14], n[15], divisor};
             })
        .def("__call__", [](const PoolPlan &p) { TEMPER_DISPATCH(run_pool, p); },
             nb::call_guard<nb::gil_scoped_release>());
}
