// Loops of the text bridge: softmax of a row, one head of attention over one sequence, on the tiles of the products. Included by
// kernels.simd.cpp inside namespace millrace::ops::cpu after gemm_tiles.inl, vector.inl and row_loops.inl.

namespace {

inline int at_most(int a, int b) { return a < b ? a : b; }

int largest_at(int n, const float* x) {
    float lane[kChains];
    for (int j = 0; j < kChains; ++j) lane[j] = -__builtin_inff();
    int i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (int j = 0; j < kChains; ++j) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    float top = -__builtin_inff();
    for (; i < n; ++i) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < kChains; ++j) top = lane[j] > top ? lane[j] : top;
    for (int at = 0; at < n; ++at) {
        if (x[at] == top) return at;
    }
    return 0;
}

/// Adds e^(x - top); kept in out unless that is null.
template <bool Keep>
inline float exp_sum_of(int n, const float* x, float top, float* out) {
    constexpr int kPiece = 64 * kChains;  // long rows go in pieces
    float sum = 0;
    for (int begin = 0; begin < n; begin += kPiece)
        sum += sum_of_chains<float>(at_most(n - begin, kPiece), [=](std::int64_t i) {
            const float e = exp_of(x[begin + i] - top);
            if constexpr (Keep) out[begin + i] = e;
            return e;
        });
    return sum;
}

float exp_sum(int n, const float* x, float top, float* out) {
    return out == nullptr ? exp_sum_of<false>(n, x, top, out) : exp_sum_of<true>(n, x, top, out);
}

inline int up_to(int size, int unit) { return (size + unit - 1) / unit * unit; }

/// in [rows, cols] as panels of kTileColumns rows each, transposed: the right side of a product with in^T.
inline void pack_right_transposed(int rows, int cols, const float* in, std::ptrdiff_t ld, float* panels) {
    for (int r = 0; r < rows; r += kTileColumns)
        pack_transposed(cols, in + r * ld, ld, at_most(kTileColumns, rows - r), kTileColumns,
                        panels + static_cast<std::ptrdiff_t>(r) * cols);
}

/// in [rows, cols] as panels of kTileColumns columns each: the right side of a product with in.
inline void pack_right(int rows, int cols, const float* in, std::ptrdiff_t ld, float* panels) {
    for (int c = 0; c < cols; c += kTileColumns)
        pack_rows(rows, in + c, ld, at_most(kTileColumns, cols - c), kTileColumns,
                  panels + static_cast<std::ptrdiff_t>(c) * rows);
}

/// c [rows <= kTileRows, cols rounded up] = a [rows, depth] times the first `depth` rows of packed panels of `panel_depth`.
inline void few_rows(int rows, int depth, int cols, const float* a, std::ptrdiff_t lda, const float* panels, int panel_depth,
                     float* c, int ldc) {
    for (int col = 0; col < cols; col += kTileColumns)
        tile_rows(depth, a, lda, rows, panels + static_cast<std::ptrdiff_t>(col) * panel_depth, c + col, ldc, false);
}

inline int seen_by(const AttentionHead& h, int i) {
    const int reach = i + 1 > h.prefix ? i + 1 : h.prefix;
    return h.causal ? at_most(reach, h.filled) : h.filled;
}

inline void put_rows(int rows, int width, const float* from, int ld, float* to, std::int64_t stride, bool add = false) {
    for (int i = 0; i < rows; ++i) {
        for (int d = 0; d < width; ++d) to[i * stride + d] = add ? to[i * stride + d] + from[i * ld + d] : from[i * ld + d];
    }
}

inline void put_zeros(int begin, int end, int width, float* to, std::int64_t stride) {
    for (int i = begin; i < end; ++i) {
        for (int d = 0; d < width; ++d) to[i * stride + d] = 0;
    }
}

/// Hands out a worker's scratch in whole cache lines.
struct Cut {
    float* next;
    float* take(std::ptrdiff_t floats) {
        float* begin = next;
        next += (floats + 15) / 16 * 16;
        return begin;
    }
};

void attention_forward_head(const AttentionHead& head) {
    const AttentionHead h = head;
    const int n = h.filled, columns = up_to(n, kTileColumns), width = up_to(h.width, kTileColumns);
    Cut cut{h.scratch};
    float *keys = cut.take(static_cast<std::ptrdiff_t>(columns) * h.width),
          *values = cut.take(static_cast<std::ptrdiff_t>(n) * width);
    float *scores = cut.take(static_cast<std::ptrdiff_t>(kTileRows) * columns), *sums = cut.take(kTileRows * width);
    pack_right_transposed(n, h.width, h.k, h.stride, keys);
    pack_right(n, h.width, h.v, h.stride, values);
    for (int i = 0; i < n; i += kTileRows) {
        const int rows = at_most(kTileRows, n - i), most = seen_by(h, i + rows - 1);
        few_rows(rows, h.width, most, h.q + i * h.stride, h.stride, keys, h.width, scores, columns);
        for (int r = 0; r < rows; ++r) {
            float* row = scores + static_cast<std::ptrdiff_t>(r) * columns;
            const int seen = seen_by(h, i + r);
            for (int j = 0; j < seen; ++j) row[j] *= h.scale;
            const float top = row[largest_at(seen, row)];
            const float sum = exp_sum_of<true>(seen, row, top, row);
            h.logsumexp[(i + r) * h.logsumexp_stride] = top + __builtin_logf(sum);
            const float share = 1.0f / sum;
            for (int j = 0; j < seen; ++j) row[j] *= share;
            for (int j = seen; j < most; ++j) row[j] = 0;
        }
        few_rows(rows, most, h.width, scores, columns, values, n, sums, width);
        put_rows(rows, h.width, sums, width, h.out + i * h.out_stride, h.out_stride);
    }
    put_zeros(n, h.positions, h.width, h.out, h.out_stride);
    put_zeros(n, h.positions, 1, h.logsumexp, h.logsumexp_stride);
}

inline float row_dot(int n, const float* a, const float* b) {
    return sum_of_chains<float>(n, [=](std::int64_t i) { return a[i] * b[i]; });
}

/// One row of weights from its scores and of the scores' gradients from those of the weights, both in place; zeros in
/// [seen, limit).
inline void weights_back(int seen, int limit, float scale, float logsumexp, float delta, float* __restrict weight,
                         float* __restrict gradient) {
    for (int j = 0; j < seen; ++j) {
        weight[j] = exp_of(weight[j] * scale - logsumexp);
        gradient[j] = weight[j] * (gradient[j] - delta) * scale;
    }
    for (int j = seen; j < limit; ++j) weight[j] = gradient[j] = 0;
}

/// Some queries and what the backward pass keeps of them: weights and gradients of the scores [rows, ld].
struct QueryBlock {
    int first, rows, limit;  ///< keys that one of them sees
    float *queries, *dout;   ///< in panels
    float *weights, *gradients;
    int ld;
};

/// to [limit, width] (+)= left^T right over the block's queries; right in panels.
inline void transposed_product(const AttentionHead& h, const QueryBlock& block, const float* left, const float* right,
                               float* panel, float* sums, float* to) {
    const int width = up_to(h.width, kTileColumns);
    for (int j = 0; j < block.limit; j += kTileRows) {
        const int rows = at_most(kTileRows, block.limit - j);
        pack_rows(block.rows, left + j, block.ld, rows, kTileRows, panel);
        for (int col = 0; col < h.width; col += kTileColumns)
            tile_panels(block.rows, panel, right + static_cast<std::ptrdiff_t>(col) * block.rows, sums + col, width, false);
        put_rows(rows, h.width, sums, width, to + j * h.gradient_stride, h.gradient_stride, true);
    }
}

void attention_backward_head(const AttentionHead& head) {
    const AttentionHead h = head;
    const int n = h.filled, columns = up_to(n, kTileColumns), width = up_to(h.width, kTileColumns);
    const int most = at_most(n, kAttentionQueries);
    const std::ptrdiff_t across = static_cast<std::ptrdiff_t>(columns) * h.width,
                         part = static_cast<std::ptrdiff_t>(most) * width;
    const std::ptrdiff_t scores = static_cast<std::ptrdiff_t>(up_to(most, kTileRows)) * columns;
    Cut cut{h.scratch};
    float *keys_across = cut.take(across), *values_across = cut.take(across);
    float* keys = cut.take(static_cast<std::ptrdiff_t>(n) * width);
    QueryBlock block{0, 0, 0, cut.take(part), cut.take(part), cut.take(scores), cut.take(scores), columns};
    float *sums = cut.take(kTileRows * width), *panel = cut.take(static_cast<std::ptrdiff_t>(most) * kTileRows);
    pack_right_transposed(n, h.width, h.k, h.stride, keys_across);
    pack_right_transposed(n, h.width, h.v, h.stride, values_across);
    pack_right(n, h.width, h.k, h.stride, keys);
    put_zeros(n, h.positions, h.width, h.dq, h.gradient_stride);
    put_zeros(0, h.positions, h.width, h.dk, h.gradient_stride);
    put_zeros(0, h.positions, h.width, h.dv, h.gradient_stride);
    for (block.first = 0; block.first < n; block.first += kAttentionQueries) {
        block.rows = at_most(kAttentionQueries, n - block.first);
        block.limit = seen_by(h, block.first + block.rows - 1);
        pack_right(block.rows, h.width, h.q + block.first * h.stride, h.stride, block.queries);
        pack_right(block.rows, h.width, h.dout + block.first * h.dout_stride, h.dout_stride, block.dout);
        for (int at = 0; at < block.rows; at += kTileRows) {
            const int rows = at_most(kTileRows, block.rows - at), i = block.first + at, seen = seen_by(h, i + rows - 1);
            float *weight = block.weights + static_cast<std::ptrdiff_t>(at) * columns,
                  *gradient = block.gradients + static_cast<std::ptrdiff_t>(at) * columns;
            few_rows(rows, h.width, seen, h.q + i * h.stride, h.stride, keys_across, h.width, weight, columns);
            few_rows(rows, h.width, seen, h.dout + i * h.dout_stride, h.dout_stride, values_across, h.width, gradient, columns);
            for (int r = 0; r < rows; ++r) {
                const float delta = row_dot(h.width, h.dout + (i + r) * h.dout_stride, h.out + (i + r) * h.out_stride);
                weights_back(seen_by(h, i + r), block.limit, h.scale, h.logsumexp[(i + r) * h.logsumexp_stride], delta,
                             weight + static_cast<std::ptrdiff_t>(r) * columns,
                             gradient + static_cast<std::ptrdiff_t>(r) * columns);
            }
            few_rows(rows, seen, h.width, gradient, columns, keys, n, sums, width);
            put_rows(rows, h.width, sums, width, h.dq + i * h.gradient_stride, h.gradient_stride);
        }
        transposed_product(h, block, block.gradients, block.queries, panel, sums, h.dk);
        transposed_product(h, block, block.weights, block.dout, panel, sums, h.dv);
    }
}

}  // namespace
