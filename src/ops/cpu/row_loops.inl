// Loops over single rows: layer norm, the gates of a GRU, losses, sums of rows. Included by kernels.simd.cpp inside namespace
// millrace::ops::cpu after column_loops.inl, and under its rules. Sums run in a fixed number of chains, so that the order depends
// on the row's length alone.

namespace {

constexpr int kChains = 16;

/// chain[i % kChains] += term(i).
template <class Number, class Term>
inline __attribute__((always_inline)) void add_chains(std::int64_t n, Number (&chain)[kChains], Term term) {
    std::int64_t i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (int j = 0; j < kChains; ++j) chain[j] += term(i + j);
    }
    for (int j = 0; i < n; ++i, ++j) chain[j] += term(i);
}

template <class Number, class Term>
inline __attribute__((always_inline)) Number sum_in_chains(int n, Term term) {
    Number chain[kChains] = {};
    add_chains(n, chain, term);
    for (int half = kChains / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) chain[j] += chain[half + j];
    }
    return chain[0];
}

/// The same, chain by chain.
template <class Number, class Term>
inline __attribute__((always_inline)) Number sum_of_chains(std::int64_t n, Term term) {
    Number chain[kChains] = {}, sum = 0;
    add_chains(n, chain, term);
    for (const Number part : chain) sum += part;
    return sum;
}

double sum_of_squares(std::int64_t n, const float* x) {
    return sum_of_chains<double>(n, [x](std::int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}

void add_rows(int n, const float* a, const float* b, float* y, bool add) {
    if (b != nullptr && add) {
#pragma GCC ivdep  // here and below: y may be a or b, never a part of them
        for (int i = 0; i < n; ++i) y[i] += a[i] + b[i];
    } else if (b != nullptr) {
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) y[i] = a[i] + b[i];
    } else if (add) {
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) y[i] += a[i];
    } else {
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) y[i] = a[i];
    }
}

void scale_row(int n, float factor, float* y) {
    for (int i = 0; i < n; ++i) y[i] *= factor;
}

void gru_gates(const GruGates& pass) {
    const GruGates p = pass;  // a copy that no store can alias
    const int cols = p.cols;
    const float *b_ir = p.b_ih, *b_iz = p.b_ih + p.hidden, *b_in = p.b_ih + 2 * p.hidden;
    const float *b_hr = p.b_hh, *b_hz = p.b_hh + p.hidden, *b_hn = p.b_hh + 2 * p.hidden;
    for (int i = 0; i < p.rows; ++i) {
        const float* __restrict in = p.from_x + i * p.product_stride;
        const float* __restrict state = p.from_h + i * p.product_stride;
        const float* __restrict h = p.h + p.row[i] * p.h_stride;
        float* __restrict out = p.out + p.row[i] * p.out_stride;
        float r[kMaxColumns], z[kMaxColumns], n[kMaxColumns], hn[kMaxColumns];
        for (int c = 0; c < cols; ++c) r[c] = sigmoid_of((in[c] + b_ir[c]) + (state[c] + b_hr[c]));
        for (int c = 0; c < cols; ++c) z[c] = sigmoid_of((in[kMaxColumns + c] + b_iz[c]) + (state[kMaxColumns + c] + b_hz[c]));
        for (int c = 0; c < cols; ++c) {
            hn[c] = state[2 * kMaxColumns + c] + b_hn[c];
            n[c] = tanh_of((in[2 * kMaxColumns + c] + b_in[c]) + r[c] * hn[c]);
        }
        for (int c = 0; c < cols; ++c) out[c] = (1.0f - z[c]) * n[c] + z[c] * h[c];
        if (p.gates == nullptr) continue;
        float* __restrict gates = p.gates + p.row[i] * p.gates_stride;
        for (int c = 0; c < cols; ++c) gates[c] = r[c];
        for (int c = 0; c < cols; ++c) gates[p.hidden + c] = z[c];
        for (int c = 0; c < cols; ++c) gates[2 * p.hidden + c] = n[c];
        for (int c = 0; c < cols; ++c) gates[3 * p.hidden + c] = hn[c];
    }
}

void gru_row_backward(int width, const float* __restrict gates, const float* __restrict h, float* __restrict dgates,
                      float* __restrict dh) {
    const float *r = gates, *z = gates + width, *n = gates + 2 * width, *hn = gates + 3 * width;
    float *dr = dgates, *dz = dgates + width, *dn = dgates + 2 * width, *dhn = dgates + 3 * width;
#pragma GCC ivdep  // the four gates lie side by side
    for (int j = 0; j < width; ++j) {
        const float d = dh[j], before_tanh = d * (1.0f - z[j]) * (1.0f - n[j] * n[j]);
        dr[j] = before_tanh * hn[j] * r[j] * (1.0f - r[j]);
        dz[j] = d * (h[j] - n[j]) * z[j] * (1.0f - z[j]);
        dn[j] = before_tanh;
        dhn[j] = before_tanh * r[j];
        dh[j] = d * z[j];
    }
}

RowNorm layernorm_row(int n, const float* x, const float* __restrict gamma, const float* __restrict beta, float eps, float* y) {
    const auto count = static_cast<float>(n);
    const float mean = sum_in_chains<float>(n, [x](std::int64_t i) { return x[i]; }) / count;
    const float variance = sum_in_chains<float>(n, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    const float scale = 1.0f / __builtin_sqrtf(variance + eps);
#pragma GCC ivdep  // y may be x
    for (int i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * gamma[i] + beta[i];
    return {mean, scale};
}

void layernorm_row_backward(int n, const float* dy, const float* __restrict x, const float* __restrict gamma, RowNorm norm,
                            float* dx, bool add) {
    const auto count = static_cast<float>(n);
    const float mean = norm.mean, scale = norm.inv_std;
    const float sum = sum_in_chains<float>(n, [=](std::int64_t i) { return dy[i] * gamma[i]; }) / count;
    const float sum_hat =
        sum_in_chains<float>(n, [=](std::int64_t i) { return dy[i] * gamma[i] * ((x[i] - mean) * scale); }) / count;
    if (add) {
#pragma GCC ivdep  // dx may be dy
        for (int i = 0; i < n; ++i) dx[i] += scale * (dy[i] * gamma[i] - sum - (x[i] - mean) * scale * sum_hat);
    } else {
#pragma GCC ivdep
        for (int i = 0; i < n; ++i) dx[i] = scale * (dy[i] * gamma[i] - sum - (x[i] - mean) * scale * sum_hat);
    }
}

void layernorm_column_sums(const LayerNormSums& pass) {
    const LayerNormSums p = pass;  // a copy that no store can alias
    const int cols = p.cols;
    float sums[2][kMaxColumns] = {};
    sum_rows(p.rows, cols, sums, [&](int row, float(&parts)[2][kMaxColumns]) {
        const float *dy = p.dy + row * p.dy_stride, *x = p.x + row * p.x_stride;
        const float mean = p.mean[row * p.mean_stride], scale = p.inv_std[row * p.inv_std_stride];
        for (int c = 0; c < cols; ++c) parts[0][c] += dy[c];
        for (int c = 0; c < cols; ++c) parts[1][c] += dy[c] * ((x[c] - mean) * scale);
    });
    for (int c = 0; c < cols; ++c) p.sum[c] = sums[0][c];
    for (int c = 0; c < cols; ++c) p.sum_hat[c] = sums[1][c];
}

double squared_distance(int n, const float* a, const float* b, float factor, float* gradient) {
    const double sum = sum_in_chains<double>(n, [a, b](std::int64_t i) {
        const auto d = static_cast<double>(a[i] - b[i]);
        return d * d;
    });
    if (gradient == nullptr) return sum;
#pragma GCC ivdep  // gradient may be a or b
    for (int i = 0; i < n; ++i) gradient[i] = (a[i] - b[i]) * factor;
    return sum;
}

}  // namespace
