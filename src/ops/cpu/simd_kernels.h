#pragma once
// Inner loops that exist once per instruction set (isa.h). Plain pointers and sizes; matrices are row-major with a leading
// dimension in elements. Every loop has an order of summation that depends on shapes alone, never on the table's vector width
// where the result is a sum of products.

#include <cstddef>
#include <cstdint>

#include "ops/cpu/isa.h"

namespace millrace::ops::cpu {

/// Counter words of the random numbers of one operator in one micro-batch.
struct RandomKey {
    std::uint64_t seed;
    std::uint32_t step, micro, op;
};

/// Coefficients of one Adam step: p loses decay * p first (AdamW: lr * wd), l2 * p joins the gradient (Adam: wd).
struct AdamStep {
    float clip, l2, decay, beta1, beta2, rate, root_bias2, epsilon;
};
struct SgdStep {
    float clip, l2, momentum, rate;
    bool first;
};

constexpr int kMaxTileRows = 8, kMaxTileColumns = 32;  ///< of any table's tile of the products
constexpr int kMaxColumns = 64;                        ///< widest block of columns the column loops take

/// The last part of a dense layer for a block of columns: v = (x - shift) * scale; u = gamma * v + beta; y = act(u) * mask.
struct ColumnPass {
    std::int32_t rows, cols;  ///< cols <= kMaxColumns
    const float* x;           ///< products, [rows, cols]
    float* saved;             ///< receives v (keep_normalized) or u; may be x itself or null
    float* y;                 ///< may be x itself
    std::int64_t x_stride, saved_stride, y_stride;
    const float *shift, *scale;  ///< per column; scale null: v = x + shift
    const float *gamma, *beta;   ///< per column, or null: u = v
    bool keep_normalized;
    std::uint8_t activation;  ///< ops::Activation
    float dropout_scale;      ///< 1 / (1 - p)
    std::uint32_t threshold;  ///< 0: no dropout
    RandomKey random;
    std::uint64_t element;         ///< number of the block's first element
    std::uint64_t element_stride;  ///< elements from one row to the next
};

/// The backward pass through dropout and activation: du = dy * mask * act'(u), with sums over rows.
struct ColumnBackward {
    std::int32_t rows, cols;
    const float* dy;
    const float* saved;  ///< v when gamma is present, else u; may be null without activation and norm
    float* du;           ///< may be dy itself
    std::int64_t dy_stride, saved_stride, du_stride;
    const float *gamma, *beta;  ///< null: saved is u
    std::uint8_t activation;
    float dropout_scale;
    std::uint32_t threshold;
    RandomKey random;
    std::uint64_t element, element_stride;
    float *sum, *sum_saved;  ///< per column: sum du, sum du * saved (null: not wanted)
};

/// Some rows of a window of columns of a GRU step, behind its products.
struct GruGates {
    std::int32_t rows, cols;       ///< cols <= kMaxColumns
    const float *from_x, *from_h;  ///< products of r, z, n, kMaxColumns apart, without biases
    std::int64_t product_stride;   ///< from row to row
    const std::int32_t* row;       ///< numbers of the rows in h, gates and out
    const float *b_ih, *b_hh;      ///< at the window's first column; gates `hidden` apart
    std::int64_t hidden;
    const float* h;
    float *gates, *out;  ///< gates null: not wanted
    std::int64_t h_stride, gates_stride, out_stride;
};

/// One head of attention over one sequence (ops/attention/attention.h): pointers to its columns at position 0.
template <class T>
struct AttentionHeadOf {
    std::int32_t width, positions, filled, prefix;
    bool causal;
    T scale;  ///< 1 / sqrt(width)
    const T *q, *k, *v;
    std::int64_t stride;  ///< of q, k, v
    T* logsumexp;         ///< written forward, read backward
    std::int64_t logsumexp_stride;
    T* out;  ///< the same
    std::int64_t out_stride;
    const T* dout;
    std::int64_t dout_stride;
    T *dq, *dk, *dv;
    std::int64_t gradient_stride;
    float* scratch;  ///< attention_floats()
};
using AttentionHead = AttentionHeadOf<float>;

/// What layer norm found of a row.
struct RowNorm {
    float mean, inv_std;
};

/// Sums over rows of dy and dy * (x - mean) * inv_std for a block of columns.
struct LayerNormSums {
    std::int32_t rows, cols;  ///< cols <= kMaxColumns
    const float *dy, *x, *mean, *inv_std;
    std::int64_t dy_stride, x_stride, mean_stride, inv_std_stride;  ///< from row to row
    float *sum, *sum_hat;                                           ///< per column
};

/// A window of pooling, `height` x `width` positions; position (i, j) begins i * row_stride + j * stride behind the first.
struct PoolWindow {
    int channels, height, width;
    std::ptrdiff_t row_stride, stride;
    bool relu;
};

struct SimdKernels {
    const char* id;    ///< as MILLRACE_CPU names it: "neon", "avx2", ...
    const char* name;  ///< "NEON", "AVX2", ...
    int vector_bytes;  ///< 16, 32 or 64
    int mr, nr;        ///< tile of the products: rows of A, columns of B

    /// c[mr, nr] (+)= a[mr, kc] * panel[kc, nr]; a row-major, `rows` (1..mr) of its rows exist and the other rows of c are
    /// undefined.
    void (*tile_rows)(int kc, const float* a, std::ptrdiff_t lda, int rows, const float* panel, float* c, std::ptrdiff_t ldc,
                      bool add);
    /// c[mr, nr] (+)= a_panel[kc, mr]^T * panel[kc, nr].
    void (*tile_panels)(int kc, const float* a_panel, const float* panel, float* c, std::ptrdiff_t ldc, bool add);
    /// panel[k][width] = in[k][0..cols), zeros beyond cols.
    void (*pack_rows)(int k, const float* in, std::ptrdiff_t ld, int cols, int width, float* panel);
    /// panel[k][width] = in[0..rows)[k], zeros beyond rows.
    void (*pack_transposed)(int k, const float* in, std::ptrdiff_t ld, int rows, int width, float* panel);
    /// out[c][r] = in[r][c].
    void (*transpose)(int rows, int cols, const float* in, std::ptrdiff_t ld_in, float* out, std::ptrdiff_t ld_out);

    /// Sums over rows of x, and of (x - mean)^2, per column.
    void (*column_sums)(int rows, int cols, const float* x, std::int64_t stride, float* sums);
    void (*column_squares)(int rows, int cols, const float* x, std::int64_t stride, const float* mean, float* sums);
    void (*column_pass)(const ColumnPass& pass);
    void (*column_backward)(const ColumnBackward& pass);
    /// dz = factor * (du - mean_du - v * mean_du_v), per column; dz may be du.
    void (*column_norm_backward)(int rows, int cols, const float* v, std::int64_t v_stride, const float* factor,
                                 const float* mean_du, const float* mean_du_v, float* dz, std::int64_t dz_stride);

    /// y (+)= a + b, b may be null; y may be a or b.
    void (*add_rows)(int n, const float* a, const float* b, float* y, bool add);
    /// y *= factor.
    void (*scale_row)(int n, float factor, float* y);
    /// y = (x - mean) / sqrt(variance + eps) * gamma + beta; y may be x.
    RowNorm (*layernorm_row)(int n, const float* x, const float* gamma, const float* beta, float eps, float* y);
    /// dx (+)= the row's gradient; dx may be dy.
    void (*layernorm_row_backward)(int n, const float* dy, const float* x, const float* gamma, RowNorm norm, float* dx, bool add);
    void (*layernorm_column_sums)(const LayerNormSums& pass);
    /// Sum of (a - b)^2; gradient = (a - b) * factor unless it is null; it may be a or b.
    double (*squared_distance)(int n, const float* a, const float* b, float factor, float* gradient);

    void (*gru_gates)(const GruGates& pass);
    /// One row of gru_backward that is not masked: gates and dgates [4, width], dh in place.
    void (*gru_row_backward)(int width, const float* gates, const float* h, float* dgates, float* dh);

    /// Number of the largest element, the lowest on ties; a NaN is never the largest.
    int (*largest)(int n, const float* x);
    /// Sum of e^(x - top), each kept in `out` unless that is null; out may be x.
    float (*exp_sum)(int n, const float* x, float top, float* out);
    void (*attention_forward)(const AttentionHead& head);
    void (*attention_backward)(const AttentionHead& head);

    /// y = the largest of u + bias (bias may be null), and where it lies (chosen may be null).
    void (*pool_forward)(const PoolWindow& window, const float* u, const float* bias, float* y, std::uint8_t* chosen);
    /// dz of all positions of the window: dy where it was chosen, else 0.
    void (*pool_backward)(const PoolWindow& window, const float* dy, const std::uint8_t* chosen, float* dz);

    void (*adam)(std::int64_t n, const AdamStep& step, float* p, const float* g, float* m, float* v);
    void (*sgd)(std::int64_t n, const SgdStep& step, float* p, const float* g, float* m);
    double (*sum_of_squares)(std::int64_t n, const float* x);
    void (*pixels)(std::int64_t n, const std::uint8_t* in, float scale, float shift, float* out);
};

/// Queries whose weights the backward pass of attention holds at a time.
constexpr int kAttentionQueries = 128;

/// Floats of scratch of one attention head, forward or backward.
inline std::size_t attention_floats(const SimdKernels& simd, int positions, int width) {
    const auto up = [](std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; };
    const auto n = static_cast<std::size_t>(positions), d = static_cast<std::size_t>(width);
    const auto rows = static_cast<std::size_t>(simd.mr), nr = static_cast<std::size_t>(simd.nr);
    const std::size_t columns = up(n, nr), across = up(d, nr), queries = n < kAttentionQueries ? n : kAttentionQueries;
    constexpr std::size_t kRounding = 16 * 16;  // every part begins at a cache line
    return 2 * columns * d + (n + 2 * queries) * across + 2 * up(queries, rows) * columns + rows * (across + queries) + kRounding;
}

MILLRACE_ISA_TABLE(SimdKernels, simd_kernels)

}  // namespace millrace::ops::cpu
