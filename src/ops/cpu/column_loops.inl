// Loops over blocks of columns and over flat arenas, written so that the compiler vectorises them. Included by kernels.simd.cpp
// inside namespace millrace::ops::cpu after gemm_tiles.inl. No functions of the standard library with inline bodies: those would
// be shared between files compiled for different instruction sets.

namespace {

constexpr int kSumRows = 64;  ///< rows summed in one chain before they join the total: bounds the rounding error of long batches
constexpr int kRandomLanes = 16;  ///< Philox blocks computed side by side

/// Philox4x32-10 of the counters {block[i], op, step, micro}: out[4 * i + j] is word j of block i. n a multiple of kRandomLanes.
__attribute__((noinline)) void random_words(const RandomKey& key, const std::uint32_t* block, int n, std::uint32_t* out) {
    for (int at = 0; at < n; at += kRandomLanes) {
        std::uint32_t c0[kRandomLanes], c1[kRandomLanes], c2[kRandomLanes], c3[kRandomLanes];
        for (int i = 0; i < kRandomLanes; ++i) {
            c0[i] = block[at + i];
            c1[i] = key.op;
            c2[i] = key.step;
            c3[i] = key.micro;
        }
        std::uint32_t key0 = static_cast<std::uint32_t>(key.seed), key1 = static_cast<std::uint32_t>(key.seed >> 32);
        for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
#pragma GCC unroll 1  // unrolled early, the loop would stay scalar
            for (int i = 0; i < kRandomLanes; ++i) {
                const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0[i];
                const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2[i];
                c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
                c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
                c1[i] = static_cast<std::uint32_t>(product1);
                c3[i] = static_cast<std::uint32_t>(product0);
            }
        }
        for (int i = 0; i < kRandomLanes; ++i) {
            out[4 * (at + i)] = c0[i];
            out[4 * (at + i) + 1] = c1[i];
            out[4 * (at + i) + 2] = c2[i];
            out[4 * (at + i) + 3] = c3[i];
        }
    }
}

/// Random words for some rows of a block of columns at a time.
struct RowWords {
    static constexpr int kBlocks = 256;  ///< a multiple of kRandomLanes, more than one row needs
    std::uint32_t words[4 * kBlocks];
    int rows_left = 0;
    const std::uint32_t* next_words = nullptr;
    int blocks_per_row = 0;

    /// The words of one row of `cols` elements whose first has the number `element`.
    const std::uint32_t* row(const RandomKey& key, std::uint64_t element, std::uint64_t stride, int cols, int rows_to_come) {
        if (rows_left == 0) refill(key, element, stride, cols, rows_to_come);
        --rows_left;
        const std::uint32_t* at = next_words + (element & 3);
        next_words += 4 * blocks_per_row;
        return at;
    }

private:
    void refill(const RandomKey& key, std::uint64_t element, std::uint64_t stride, int cols, int rows_to_come) {
        blocks_per_row = ((element | stride) & 3) == 0 ? (cols + 3) / 4 : (cols + 6) / 4;
        rows_left = kBlocks / blocks_per_row < rows_to_come ? kBlocks / blocks_per_row : rows_to_come;
        std::uint32_t block[kBlocks];
        int n = 0;
        for (int r = 0; r < rows_left; ++r) {
            const std::uint32_t first = static_cast<std::uint32_t>((element + static_cast<std::uint64_t>(r) * stride) >> 2);
            for (int i = 0; i < blocks_per_row; ++i) block[n++] = first + static_cast<std::uint32_t>(i);
        }
        while (n % kRandomLanes != 0) block[n++] = 0;
        random_words(key, block, n, words);
        next_words = words;
    }
};

constexpr std::uint8_t kNone = 0, kRelu = 1, kGelu = 2, kTanh = 3;

/// One loop per kind, so that each vectorises.
inline void activate(std::uint8_t kind, int cols, float* u) {
    if (kind == kRelu) {
        for (int c = 0; c < cols; ++c) u[c] = u[c] < 0 ? 0 : u[c];  // keeps NaN
    } else if (kind == kGelu) {
        for (int c = 0; c < cols; ++c) u[c] = gelu_of(u[c]);
    } else if (kind == kTanh) {
        for (int c = 0; c < cols; ++c) u[c] = tanh_of(u[c]);
    } else if (kind != kNone) {
        for (int c = 0; c < cols; ++c) u[c] = sigmoid_of(u[c]);
    }
}

/// d *= act'(u)
inline void apply_slope(std::uint8_t kind, int cols, const float* __restrict u, float* __restrict d) {
    if (kind == kRelu) {
        for (int c = 0; c < cols; ++c) d[c] = u[c] > 0 ? d[c] : 0.0f;
    } else if (kind == kGelu) {
        for (int c = 0; c < cols; ++c) d[c] *= gelu_slope(u[c]);
    } else if (kind == kTanh) {
        for (int c = 0; c < cols; ++c) {
            const float t = tanh_of(u[c]);
            d[c] *= 1.0f - t * t;
        }
    } else if (kind != kNone) {
        for (int c = 0; c < cols; ++c) {
            const float s = sigmoid_of(u[c]);
            d[c] *= s * (1.0f - s);
        }
    }
}

/// N sums over rows per column, kSumRows of them at a time: add(row, parts) adds what a row gives.
template <int N, class Add>
inline __attribute__((always_inline)) void sum_rows(int rows, int cols, float (&sums)[N][kMaxColumns], Add add) {
    for (int begin = 0; begin < rows; begin += kSumRows) {
        const int end = begin + kSumRows < rows ? begin + kSumRows : rows;
        float parts[N][kMaxColumns] = {};
        for (int r = begin; r < end; ++r) add(r, parts);
        for (int i = 0; i < N; ++i) {
            for (int c = 0; c < cols; ++c) sums[i][c] += parts[i][c];
        }
    }
}

void column_sums(int rows, int cols, const float* x, std::int64_t stride, float* sums) {
    float sum[1][kMaxColumns] = {};
    sum_rows(rows, cols, sum, [=](int r, float(&part)[1][kMaxColumns]) {
        for (int c = 0; c < cols; ++c) part[0][c] += x[r * stride + c];
    });
    for (int c = 0; c < cols; ++c) sums[c] = sum[0][c];
}

void column_squares(int rows, int cols, const float* x, std::int64_t stride, const float* __restrict mean, float* sums) {
    float sum[1][kMaxColumns] = {};
    sum_rows(rows, cols, sum, [=](int r, float(&part)[1][kMaxColumns]) {
        const float* row = x + r * stride;
        for (int c = 0; c < cols; ++c) part[0][c] += (row[c] - mean[c]) * (row[c] - mean[c]);
    });
    for (int c = 0; c < cols; ++c) sums[c] = sum[0][c];
}

/// y = act-output u under the mask of `words`.
inline void drop(int cols, const float* __restrict u, const std::uint32_t* __restrict words, std::uint32_t threshold, float scale,
                 float* __restrict y) {
    for (int c = 0; c < cols; ++c) {  // a mask of bits: the compiler would make a branch of a choice
        const std::uint32_t keep = words[c] >= threshold ? ~std::uint32_t{0} : 0;
        y[c] = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, u[c] * scale) & keep);
    }
}

void column_pass(const ColumnPass& pass) {
    const ColumnPass p = pass;  // a copy that no store can alias
    RowWords random;
    const int cols = p.cols;
    float u[kMaxColumns];
    for (int r = 0; r < p.rows; ++r) {
        const float* x = p.x + r * p.x_stride;
        float* saved = p.saved != nullptr ? p.saved + r * p.saved_stride : nullptr;
        float* y = p.y + r * p.y_stride;
        if (p.scale != nullptr) {
            for (int c = 0; c < cols; ++c) u[c] = (x[c] - p.shift[c]) * p.scale[c];
        } else if (p.shift != nullptr) {
            for (int c = 0; c < cols; ++c) u[c] = x[c] + p.shift[c];
        } else {
            for (int c = 0; c < cols; ++c) u[c] = x[c];
        }
        if (saved != nullptr && p.keep_normalized) {
            for (int c = 0; c < cols; ++c) saved[c] = u[c];
        }
        if (p.gamma != nullptr) {
            for (int c = 0; c < cols; ++c) u[c] = p.gamma[c] * u[c] + p.beta[c];
        }
        if (saved != nullptr && !p.keep_normalized) {
            for (int c = 0; c < cols; ++c) saved[c] = u[c];
        }
        activate(p.activation, cols, u);
        if (p.threshold != 0) {
            const std::uint64_t element = p.element + static_cast<std::uint64_t>(r) * p.element_stride;
            const std::uint32_t* words = random.row(p.random, element, p.element_stride, cols, p.rows - r);
            drop(cols, u, words, p.threshold, p.dropout_scale, y);
        } else {
            for (int c = 0; c < cols; ++c) y[c] = u[c];
        }
    }
}

/// du of one row into d[]: dy back through dropout and activation. u: the activation's input.
inline void row_backward(const ColumnBackward& p, const float* __restrict dy, const float* __restrict u,
                         const std::uint32_t* words, float* __restrict d) {
    const int cols = p.cols;
    if (words != nullptr) {
        drop(cols, dy, words, p.threshold, p.dropout_scale, d);
    } else {
        for (int c = 0; c < cols; ++c) d[c] = dy[c];
    }
    apply_slope(p.activation, cols, u, d);
}

void column_backward(const ColumnBackward& pass) {
    const ColumnBackward p = pass;  // a copy that no store can alias
    RowWords random;
    const int cols = p.cols;
    float u[kMaxColumns], d[kMaxColumns], sums[2][kMaxColumns] = {};
    sum_rows(p.rows, cols, sums, [&](int r, float(&parts)[2][kMaxColumns]) {
        const float* saved = p.saved != nullptr ? p.saved + r * p.saved_stride : nullptr;
        const float* input = saved;
        if (p.gamma != nullptr) {
            for (int c = 0; c < cols; ++c) u[c] = p.gamma[c] * saved[c] + p.beta[c];
            input = u;
        }
        const std::uint64_t element = p.element + static_cast<std::uint64_t>(r) * p.element_stride;
        const std::uint32_t* words =
            p.threshold != 0 ? random.row(p.random, element, p.element_stride, cols, p.rows - r) : nullptr;
        row_backward(p, p.dy + r * p.dy_stride, input, words, d);
        if (p.sum_saved != nullptr) {
            for (int c = 0; c < cols; ++c) parts[1][c] += d[c] * saved[c];
        }
        float* du = p.du + r * p.du_stride;
        for (int c = 0; c < cols; ++c) {
            du[c] = d[c];
            parts[0][c] += d[c];
        }
    });
    for (int c = 0; c < cols; ++c) p.sum[c] = sums[0][c];
    if (p.sum_saved != nullptr) {
        for (int c = 0; c < cols; ++c) p.sum_saved[c] = sums[1][c];
    }
}

void column_norm_backward(int rows, int cols, const float* v, std::int64_t v_stride, const float* __restrict factor,
                          const float* __restrict mean_du, const float* __restrict mean_du_v, float* dz, std::int64_t dz_stride) {
    for (int r = 0; r < rows; ++r, v += v_stride, dz += dz_stride) {
        const float* __restrict vr = v;
        float* __restrict d = dz;
        for (int c = 0; c < cols; ++c) d[c] = factor[c] * (d[c] - mean_du[c] - vr[c] * mean_du_v[c]);
    }
}

void adam(std::int64_t n, const AdamStep& step, float* __restrict p, const float* __restrict g, float* __restrict m,
          float* __restrict v) {
    const AdamStep s = step;
    const float one_minus_beta1 = 1.0f - s.beta1, one_minus_beta2 = 1.0f - s.beta2, root = 1.0f / s.root_bias2;
    for (std::int64_t i = 0; i < n; ++i) {
        const float grad = g[i] * s.clip + s.l2 * p[i];
        const float first = s.beta1 * m[i] + one_minus_beta1 * grad;
        const float second = s.beta2 * v[i] + one_minus_beta2 * (grad * grad);
        m[i] = first;
        v[i] = second;
        p[i] = p[i] - s.decay * p[i] - s.rate * (first / (__builtin_sqrtf(second) * root + s.epsilon));
    }
}

void sgd(std::int64_t n, const SgdStep& step, float* __restrict p, const float* __restrict g, float* __restrict m) {
    const SgdStep s = step;
    if (m == nullptr) {
        for (std::int64_t i = 0; i < n; ++i) p[i] -= s.rate * (g[i] * s.clip + s.l2 * p[i]);
    } else if (s.first) {
        for (std::int64_t i = 0; i < n; ++i) {
            m[i] = g[i] * s.clip + s.l2 * p[i];
            p[i] -= s.rate * m[i];
        }
    } else {
        for (std::int64_t i = 0; i < n; ++i) {
            m[i] = s.momentum * m[i] + (g[i] * s.clip + s.l2 * p[i]);
            p[i] -= s.rate * m[i];
        }
    }
}

void pixels(std::int64_t n, const std::uint8_t* __restrict in, float scale, float shift, float* __restrict out) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale + shift;
}

}  // namespace
