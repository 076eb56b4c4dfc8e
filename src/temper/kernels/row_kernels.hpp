// Kernels over rows (layer norm, rms norm, softmax, rotary embedding) and channels-last pools.
// Included by eltwise_isa.hpp inside its namespace.

// Loads up to 8 values; lanes past the end hold `fill`.
inline f8 load_tail(const float *p, std::int64_t n, float fill) {
    float lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = i < n ? p[i] : fill;
    return load(lanes);
}
inline void store_tail(float *p, std::int64_t n, f8 v) {
    float lanes[8];
    store(lanes, v);
    std::memcpy(p, lanes, n * sizeof(float));
}

inline void norm_row(const RowPlan &plan, float *out, const float *x, const float *residual) {
    const std::int64_t n = plan.columns;
    const bool centred = plan.kind == RowKind::layer_norm;
    if (residual) {
        map2(out, x, residual, n, false, [](f8 a, f8 b) { return a + b; });
        x = out;
    }
    float mean = 0.0f;
    if (centred) {
        f8 sum0 = {}, sum1 = {};
        std::int64_t i = 0;
        for (; i + 16 <= n; i += 16) {
            sum0 += load(x + i);
            sum1 += load(x + i + 8);
        }
        for (; i < n; i += 8) sum0 += n - i >= 8 ? load(x + i) : load_tail(x + i, n - i, 0.0f);
        mean = sum_lanes(sum0 + sum1) / static_cast<float>(n);
    }
    f8 square0 = {}, square1 = {};
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        f8 a = load(x + i) - mean, b = load(x + i + 8) - mean;
        square0 = fma(a, a, square0);
        square1 = fma(b, b, square1);
    }
    for (; i < n; i += 8) {
        f8 a = (n - i >= 8 ? load(x + i) : load_tail(x + i, n - i, mean)) - mean;
        square0 = fma(a, a, square0);
    }
    const float variance = sum_lanes(square0 + square1) / static_cast<float>(n);
    const float inverse = 1.0f / std::sqrt(variance + plan.eps);
    const bool last = plan.post.empty();
    const f8 shift = splat(mean), factor = splat(inverse);
    const float *w = plan.weight, *b = plan.bias;
    const bool round = last && plan.round;
    if (w && b) {
        for (i = 0; i + 8 <= n; i += 8) {
            f8 v = fma((load(x + i) - shift) * factor, load(w + i), load(b + i));
            store(out + i, round ? round_bf16(v) : v);
        }
    } else if (w) {
        for (i = 0; i + 8 <= n; i += 8) {
            f8 v = (load(x + i) - shift) * factor * load(w + i);
            store(out + i, round ? round_bf16(v) : v);
        }
    } else {
        i = 0;
    }
    for (; i < n; i += 8) {
        const std::int64_t left = std::min<std::int64_t>(8, n - i);
        f8 v = (load_tail(x + i, left, 0.0f) - shift) * factor;
        if (w) v = v * load_tail(w + i, left, 0.0f);
        if (b) v = v + load_tail(b + i, left, 0.0f);
        store_tail(out + i, left, round ? round_bf16(v) : v);
    }
    for (std::size_t s = 0; s < plan.post.size(); ++s)
        run_stage(plan.post[s], out, out, n, plan.round && s + 1 == plan.post.size());
}

inline void softmax_row(const RowPlan &plan, float *out, const float *x, const float *mask) {
    const std::int64_t n = plan.columns;
    const f8 scale = splat(plan.scale);
    const float lowest = -std::numeric_limits<float>::infinity();
    if (mask && !plan.mask_splat) {
        map2(out, x, mask, n, false, [=](f8 a, f8 b) { return a * scale + b; });
        x = out;
    } else if (mask || plan.scale != 1.0f) {
        const f8 shift = splat(mask ? *mask : 0.0f);
        map1(out, x, n, false, [=](f8 a) { return a * scale + shift; });
        x = out;
    }
    f8 top = splat(lowest);
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) top = vmax(load(x + i), top);
    if (i < n) top = vmax(load_tail(x + i, n - i, lowest), top);
    const f8 highest = splat(max_lanes(top));
    if (plan.kind == RowKind::attention && highest[0] == lowest &&
        std::all_of(x, x + n, [=](float v) { return v == lowest; })) {
        std::fill(out, out + n, 0.0f);  // no key is open to this query
        return;
    }
    f8 sum0 = {}, sum1 = {};
    for (i = 0; i + 16 <= n; i += 16) {
        f8 a = vexp(load(x + i) - highest), b = vexp(load(x + i + 8) - highest);
        store(out + i, a);
        store(out + i + 8, b);
        sum0 += a;
        sum1 += b;
    }
    for (; i < n; i += 8) {
        const std::int64_t left = std::min<std::int64_t>(8, n - i);
        f8 e = vexp(load_tail(x + i, left, lowest) - highest);
        store_tail(out + i, left, e);
        sum0 += e;
    }
    const f8 inverse = splat(1.0f / sum_lanes(sum0 + sum1));
    map1(out, out, n, plan.round, [=](f8 e) { return e * inverse; });
}

inline void rotary_row(const RowPlan &plan, float *out, const float *x, const float *cos,
                       const float *sin) {
    const std::int64_t half = plan.columns / 2;
    const float *y = x + half;
    std::int64_t i = 0;
    for (; i + 8 <= half; i += 8) {
        f8 a = load(x + i), b = load(y + i);
        f8 low = a * load(cos + i) - b * load(sin + i);
        f8 high = b * load(cos + half + i) + a * load(sin + half + i);
        store(out + i, plan.round ? round_bf16(low) : low);
        store(out + half + i, plan.round ? round_bf16(high) : high);
    }
    if (i < half) {
        const std::int64_t n = half - i;
        f8 a = load_tail(x + i, n, 0), b = load_tail(y + i, n, 0);
        f8 low = a * load_tail(cos + i, n, 0) - b * load_tail(sin + i, n, 0);
        f8 high = b * load_tail(cos + half + i, n, 0) + a * load_tail(sin + half + i, n, 0);
        store_tail(out + i, n, plan.round ? round_bf16(low) : low);
        store_tail(out + half + i, n, plan.round ? round_bf16(high) : high);
    }
}

void run_rows(const RowPlan &plan) {
    std::int64_t rows = 1;
    for (int d = 0; d < plan.dims; ++d) rows *= plan.size[d];
    parallel_for(rows, rows * plan.columns * 4, [&](std::size_t begin, std::size_t end) {
        Walk walk(plan, plan.dims, begin);
        for (std::size_t row = begin; row < end; ++row, walk.next()) {
            float *out = plan.out + row * plan.columns;
            const float *second = plan.operands > 1 ? walk.in[1] : nullptr;
            if (plan.kind == RowKind::softmax || plan.kind == RowKind::attention)
                softmax_row(plan, out, walk.in[0], second);
            else if (plan.kind == RowKind::rotary) rotary_row(plan, out, walk.in[0], second, walk.in[2]);
            else norm_row(plan, out, walk.in[0], second);
        }
    });
}

inline void pool_pixel(const PoolPlan &p, float *out, std::int64_t n, std::int64_t oh,
                       std::int64_t ow) {
    const std::int64_t top = oh * p.stride_h - p.top, left = ow * p.stride_w - p.left;
    std::int64_t taps = 0;
    for (std::int64_t kh = 0; kh < p.kernel_h; ++kh) {
        const std::int64_t y = top + kh * p.dilation_h;
        if (y < 0 || y >= p.in_h) continue;
        for (std::int64_t kw = 0; kw < p.kernel_w; ++kw) {
            const std::int64_t x = left + kw * p.dilation_w;
            if (x < 0 || x >= p.in_w) continue;
            const float *in = p.in + ((n * p.in_h + y) * p.in_w + x) * p.channels;
            if (taps++ == 0) std::memcpy(out, in, p.channels * sizeof(float));
            else if (p.maximum)
                map2_loop<false>(out, out, in, p.channels, [](f8 a, f8 b) { return vmax(b, a); });
            else map2_loop<false>(out, out, in, p.channels, [](f8 a, f8 b) { return a + b; });
        }
    }
    if (p.maximum) return;
    if (taps == 0) std::fill(out, out + p.channels, 0.0f);
    // The window counts its padding, but not what hangs over the padded edge.
    const std::int64_t bottom = std::min(top + p.kernel_h, p.in_h + p.bottom);
    const std::int64_t right = std::min(left + p.kernel_w, p.in_w + p.right);
    float count = p.include_pad ? static_cast<float>((bottom - top) * (right - left))
                                : static_cast<float>(taps);
    if (p.divisor != 0.0f) count = p.divisor;
    map1(out, out, p.channels, p.round, [=](f8 a) { return a / count; });
}

void run_pool(const PoolPlan &p) {
    const std::int64_t rows = p.batch * p.out_h;
    parallel_for(rows, rows * p.out_w * p.channels * p.kernel_h * p.kernel_w,
                 [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
            const std::int64_t n = row / p.out_h, oh = row % p.out_h;
            for (std::int64_t ow = 0; ow < p.out_w; ++ow)
                pool_pixel(p, p.out + (row * p.out_w + ow) * p.channels, n, oh, ow);
        }
    });
}
