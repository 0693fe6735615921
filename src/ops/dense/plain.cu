// The dense layer as separate launches: a product, then one kernel for norm, activation and dropout. Any element type, any batch.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kLanes = 32, kRows = 8;  // a block: 32 columns, 8 rows at a time

/// Sum over threadIdx.y, in order, for each column of the block.
__device__ float rows_sum(float value, float (&shared)[kRows][kLanes]) {
    __syncthreads();
    shared[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
    for (int y = 0; y < kRows; ++y) sum += shared[y][threadIdx.x];
    return sum;
}

template <class T>
struct EpilogueArgs {
    Mat<T> z;  ///< the product, in the memory of saved or y
    Mat<const float> bias, gamma, beta;
    Mat<float> running_mean, running_var, inv_std;
    Mat<T> saved, y;
    States state;
    int groups, rows, cols, row_tile;
    DenseParams p;
};

template <class T>
__device__ void batch_statistics(const EpilogueArgs<T>& a, int k, int g, int col, bool valid, float bias, float& mean,
                                 float& inv) {
    __shared__ float shared[kRows][kLanes];
    float sum = 0;
    for (int r = threadIdx.y; valid && r < a.rows; r += kRows) sum += load(a.z.row(k, g, r) + col) + bias;
    mean = rows_sum(sum, shared) / static_cast<float>(a.rows);
    float squares = 0;
    for (int r = threadIdx.y; valid && r < a.rows; r += kRows) {
        const float d = load(a.z.row(k, g, r) + col) + bias - mean;
        squares += d * d;
    }
    const float var = rows_sum(squares, shared) / static_cast<float>(a.rows);
    inv = 1 / sqrtf(var + a.p.eps);
    if (threadIdx.y != 0 || !valid) return;
    a.inv_std.row(k, g, 0)[col] = inv;
    const float unbiased = a.rows > 1 ? var * static_cast<float>(a.rows) / static_cast<float>(a.rows - 1) : var;
    if (!isfinite(mean) || !isfinite(unbiased)) return;
    float &rm = a.running_mean.row(k, g, 0)[col], &rv = a.running_var.row(k, g, 0)[col];
    rm += a.p.momentum * (mean - rm);
    rv += a.p.momentum * (unbiased - rv);
}

template <class T>
__global__ void epilogue_kernel(const __grid_constant__ EpilogueArgs<T> a) {
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = blockIdx.x * kLanes + threadIdx.x;
    const bool valid = col < a.cols;
    const float bias = valid && a.bias ? a.bias.row(k, g, 0)[col] : 0;
    float mean = 0, inv = 1, gamma = 1, beta = 0;
    if (a.p.norm == Norm::batch_train) batch_statistics(a, k, g, col, valid, bias, mean, inv);
    if (!valid) return;
    if (a.p.norm == Norm::batch_eval) {
        mean = a.running_mean.row(k, g, 0)[col];
        inv = 1 / sqrtf(a.running_var.row(k, g, 0)[col] + a.p.eps);
    }
    if (a.p.norm != Norm::none) {
        gamma = a.gamma.row(k, g, 0)[col];
        beta = a.beta.row(k, g, 0)[col];
    }
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const int end = min(a.rows, static_cast<int>(blockIdx.y + 1) * a.row_tile);
    for (int r = blockIdx.y * a.row_tile + threadIdx.y; r < end; r += kRows) {
        float v = (load(a.z.row(k, g, r) + col) + bias - mean) * inv;
        if (a.saved) {
            v = rounded(v, static_cast<const T*>(nullptr));
            store(a.saved.row(k, g, r) + col, v);
        }
        const float u = a.p.norm == Norm::none ? v : gamma * v + beta;
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col;
        store(a.y.row(k, g, r) + col, activate(u, a.p.activation) * dropout_factor(key, element));
    }
}

template <class T>
struct PlainBackwardArgs {
    Mat<const T> dy, saved;
    Mat<const float> gamma, beta, inv_std;
    Mat<T> dz;
    Mat<float> dgamma, dbeta, dbias;
    bool add_dgamma, add_dbeta, add_dbias;
    States state;
    int groups, rows, cols;
    DenseParams p;
};

template <class T>
__device__ float through_activation(const PlainBackwardArgs<T>& a, const DropoutKey& key, int k, int g, int r, int col,
                                    float gamma, float beta, float& xhat) {
    xhat = a.saved ? load(a.saved.row(k, g, r) + col) : 0;
    const float u = a.p.norm == Norm::batch_train ? gamma * xhat + beta : xhat;
    const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col;
    return load(a.dy.row(k, g, r) + col) * dropout_factor(key, element) * activation_slope(u, a.p.activation);
}

template <class T>
__global__ void plain_backward_kernel(const __grid_constant__ PlainBackwardArgs<T> a) {
    __shared__ float shared[kRows][kLanes];
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = blockIdx.x * kLanes + threadIdx.x;
    const bool valid = col < a.cols, batch = a.p.norm == Norm::batch_train;
    float gamma = 1, beta = 0, inv = 1;
    if (valid && batch) {
        gamma = a.gamma.row(k, g, 0)[col];
        beta = a.beta.row(k, g, 0)[col];
        inv = a.inv_std.row(k, g, 0)[col];
    }
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    float sum = 0, dot = 0;
    for (int r = threadIdx.y; valid && r < a.rows; r += kRows) {
        float xhat;
        const float du = through_activation(a, key, k, g, r, col, gamma, beta, xhat);
        sum += du;
        dot += du * xhat;
    }
    sum = rows_sum(sum, shared);
    dot = rows_sum(dot, shared);
    if (!valid) return;
    const float n = static_cast<float>(a.rows), factor = gamma * inv / n;
    for (int r = threadIdx.y; r < a.rows; r += kRows) {
        float xhat;
        const float du = through_activation(a, key, k, g, r, col, gamma, beta, xhat);
        store(a.dz.row(k, g, r) + col, batch ? factor * (n * du - sum - xhat * dot) : du);
    }
    if (threadIdx.y != 0) return;
    auto put = [&](const Mat<float>& to, bool add, float value) {
        if (!to) return;
        float& at = to.row(k, g, 0)[col];
        at = add ? at + value : value;
    };
    if (batch) {
        put(a.dgamma, a.add_dgamma, dot);
        put(a.dbeta, a.add_dbeta, sum);
    } else {
        put(a.dbias, a.add_dbias, sum);
    }
}

/// dz of a layer without a norm: nothing is summed, so that every warp takes a row.
template <class T, int V>
__global__ void rows_backward_kernel(const __grid_constant__ PlainBackwardArgs<T> a) {
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, r = static_cast<int>(blockIdx.x * kRows + threadIdx.y);
    if (r >= a.rows) return;
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    for (int c = static_cast<int>(threadIdx.x) * V; c < a.cols; c += kLanes * V) {
        float d[V], u[V] = {};
        load_run<V>(a.dy.row(k, g, r) + c, d);
        if (a.saved) load_run<V>(a.saved.row(k, g, r) + c, u);
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + c;
#pragma unroll
        for (int i = 0; i < V; ++i) d[i] *= dropout_factor(key, element + i) * activation_slope(u[i], a.p.activation);
        store_run<V>(a.dz.row(k, g, r) + c, d);
    }
}

template <class T>
KernelResult make_plain_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand& oy = b[y];
    const Operand& z = b[saved].present() ? b[saved] : oy;
    auto product = make_product(c, Product::forward, b[x], b[w], z, false);
    if (!product.ok()) return product.error();
    EpilogueArgs<T> a{};
    a.z = mat<T>(z);
    a.bias = mat<const float>(b[bias]);
    a.gamma = mat<const float>(b[gamma]);
    a.beta = mat<const float>(b[beta]);
    a.running_mean = mat<float>(b[running_mean]);
    a.running_var = mat<float>(b[running_var]);
    a.inv_std = mat<float>(b[inv_std]);
    a.saved = mat<T>(b[saved]);
    a.y = mat<T>(oy);
    a.state = states(b[state]);
    a.groups = oy.g;
    a.rows = oy.rows;
    a.cols = oy.cols;
    a.p = b.params<DenseParams>();
    if (oy.count() == 0) return make_kernel([] {});
    a.row_tile = a.p.norm == Norm::batch_train ? oy.rows : 64;
    const dim3 grid(blocks_for(oy.cols, kLanes), blocks_for(oy.rows, a.row_tile), static_cast<unsigned>(oy.k * oy.g));
    return make_kernel([=, stream = c.stream, first = std::shared_ptr<Kernel>(std::move(product).value())] {
        first->run();
        launch(epilogue_kernel<T>, grid, dim3(kLanes, kRows), 0, stream, a);
    });
}

/// Over very many rows: first dz, then the bias's gradient as a sum over it.
template <class T>
KernelResult make_rows_backward(Context& c, const Bound& b, const PlainBackwardArgs<T>& a) {
    using namespace dense_backward;
    std::shared_ptr<Kernel> sum;
    if (b[dbias].present()) {
        auto made = make_column_sum(c, b[dz], b[dbias], a.add_dbias);
        if (!made.ok()) return made.error();
        sum = std::move(*made);
    }
    const bool whole = a.cols % 8 == 0 && whole_runs(b[dy]) && whole_runs(b[saved]) && whole_runs(b[dz]);
    const auto kernel = whole ? rows_backward_kernel<T, 8> : rows_backward_kernel<T, 1>;
    const dim3 grid(blocks_for(a.rows, kRows), 1, static_cast<unsigned>(b[dz].k * b[dz].g));
    return make_kernel([=, stream = c.stream] {
        launch(kernel, grid, dim3(kLanes, kRows), 0, stream, a);
        if (sum) sum->run();
    });
}

template <class T>
KernelResult make_plain_backward(Context& c, const Bound& b) {
    using namespace dense_backward;
    PlainBackwardArgs<T> a{};
    a.dy = mat<const T>(b[dy]);
    a.saved = mat<const T>(b[saved]);
    a.gamma = mat<const float>(b[gamma]);
    a.beta = mat<const float>(b[beta]);
    a.inv_std = mat<const float>(b[inv_std]);
    a.dz = mat<T>(b[dz]);
    a.dgamma = mat<float>(b[dgamma]);
    a.dbeta = mat<float>(b[dbeta]);
    a.dbias = mat<float>(b[dbias]);
    a.add_dgamma = b.accumulates(dgamma);
    a.add_dbeta = b.accumulates(dbeta);
    a.add_dbias = b.accumulates(dbias);
    a.state = states(b[state]);
    a.groups = b[dz].g;
    a.rows = b[dz].rows;
    a.cols = b[dz].cols;
    a.p = b.params<DenseParams>();
    if (b[dz].k * b[dz].g * b[dz].cols == 0) return make_kernel([] {});
    if (a.p.norm == Norm::none && a.rows >= c.library_rows) return make_rows_backward<T>(c, b, a);
    const dim3 grid(blocks_for(a.cols, kLanes), 1, static_cast<unsigned>(b[dz].k * b[dz].g));
    return make_kernel([=, stream = c.stream] { launch(plain_backward_kernel<T>, grid, dim3(kLanes, kRows), 0, stream, a); });
}

}  // namespace

KernelResult make_dense_forward(Context& c, const Bound& b) {
    if (fuses_dense_forward(c, b)) return make_fused_dense_forward(c, b);
    return b[dense_forward::y].dtype == DType::bf16 ? make_plain_forward<bf16>(c, b) : make_plain_forward<float>(c, b);
}

KernelResult make_dense_backward(Context& c, const Bound& b) {
    if (fuses_backward(c, nullptr, &b)) return make_fused_backward(c, nullptr, &b);
    return b[dense_backward::dz].dtype == DType::bf16 ? make_plain_backward<bf16>(c, b) : make_plain_backward<float>(c, b);
}

}  // namespace millrace::ops::cuda
