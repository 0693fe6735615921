// Loops over single rows: layer norm, the backward pass of a GRU, losses, sums of rows. Included by simd_*.cpp inside namespace
// millrace::ops::cpu after column_loops.inl, and under its rules. Sums run in a fixed number of chains, so that the order depends
// on the row's length alone.

namespace {

constexpr int kChains = 16;

template <class Number, class Term>
inline __attribute__((always_inline)) Number sum_in_chains(int n, Term term) {
    Number chain[kChains] = {};
    int i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (int j = 0; j < kChains; ++j) chain[j] += term(i + j);
    }
    for (int j = 0; i < n; ++i, ++j) chain[j] += term(i);
    for (int half = kChains / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) chain[j] += chain[half + j];
    }
    return chain[0];
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
    const float mean = sum_in_chains<float>(n, [x](int i) { return x[i]; }) / count;
    const float variance = sum_in_chains<float>(n, [x, mean](int i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    const float scale = 1.0f / __builtin_sqrtf(variance + eps);
#pragma GCC ivdep  // y may be x
    for (int i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * gamma[i] + beta[i];
    return {mean, scale};
}

void layernorm_row_backward(int n, const float* dy, const float* __restrict x, const float* __restrict gamma, RowNorm norm,
                            float* dx, bool add) {
    const auto count = static_cast<float>(n);
    const float mean = norm.mean, scale = norm.inv_std;
    const float sum = sum_in_chains<float>(n, [=](int i) { return dy[i] * gamma[i]; }) / count;
    const float sum_hat =
        sum_in_chains<float>(n, [=](int i) { return dy[i] * gamma[i] * ((x[i] - mean) * scale); }) / count;
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
    float sum[kMaxColumns] = {}, sum_hat[kMaxColumns] = {};
    for (int begin = 0; begin < p.rows; begin += kSumRows) {
        const int end = begin + kSumRows < p.rows ? begin + kSumRows : p.rows;
        float part[kMaxColumns] = {}, part_hat[kMaxColumns] = {};
        for (int row = begin; row < end; ++row) {
            const float *dy = p.dy + row * p.dy_stride, *x = p.x + row * p.x_stride;
            const float mean = p.mean[row * p.mean_stride], scale = p.inv_std[row * p.inv_std_stride];
            for (int c = 0; c < cols; ++c) part[c] += dy[c];
            for (int c = 0; c < cols; ++c) part_hat[c] += dy[c] * ((x[c] - mean) * scale);
        }
        for (int c = 0; c < cols; ++c) sum[c] += part[c];
        for (int c = 0; c < cols; ++c) sum_hat[c] += part_hat[c];
    }
    for (int c = 0; c < cols; ++c) p.sum[c] = sum[c];
    for (int c = 0; c < cols; ++c) p.sum_hat[c] = sum_hat[c];
}

double squared_distance(int n, const float* a, const float* b, float factor, float* gradient) {
    const double sum = sum_in_chains<double>(n, [a, b](int i) {
        const auto d = static_cast<double>(a[i] - b[i]);
        return d * d;
    });
    if (gradient == nullptr) return sum;
#pragma GCC ivdep  // gradient may be a or b
    for (int i = 0; i < n; ++i) gradient[i] = (a[i] - b[i]) * factor;
    return sum;
}

}  // namespace
