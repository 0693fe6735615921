// The dense layer as separate launches: a product, then one kernel for norm, activation and dropout (rows.cu where there is no
// norm and rows are whole). Any element type, any batch.

#include "ops/cuda/context.h"
#include "ops/dense/fused.h"
#include "ops/dense/layer_args.cuh"
#include "ops/dense/rows.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kLanes = 32, kRows = 8;  // a block: 32 columns, 8 rows at a time

template <class T>
struct EpilogueArgs : LayerForward<T> {
    Mat<T> z;  ///< the product, in the memory of saved or y
    int groups, rows, cols, row_tile;
};

template <class T>
__device__ void batch_statistics(const EpilogueArgs<T>& a, int k, int g, int col, bool valid, float bias, float& mean,
                                 float& inv) {
    float sum = 0;
    for (int r = threadIdx.y; valid && r < a.rows; r += kRows) sum += load(a.z.row(k, g, r) + col) + bias;
    mean = sum_over_y<kRows>(sum) / static_cast<float>(a.rows);
    float squares = 0;
    for (int r = threadIdx.y; valid && r < a.rows; r += kRows) {
        const float d = load(a.z.row(k, g, r) + col) + bias - mean;
        squares += d * d;
    }
    const float var = sum_over_y<kRows>(squares) / static_cast<float>(a.rows);
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
struct PlainBackwardArgs : LayerBackward<T> {
    int groups, rows, cols;
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
    sum = sum_over_y<kRows>(sum);
    dot = sum_over_y<kRows>(dot);
    if (!valid) return;
    const float n = static_cast<float>(a.rows), factor = gamma * inv / n;
    for (int r = threadIdx.y; r < a.rows; r += kRows) {
        float xhat;
        const float du = through_activation(a, key, k, g, r, col, gamma, beta, xhat);
        store(a.dz.row(k, g, r) + col, batch ? factor * (n * du - sum - xhat * dot) : du);
    }
    if (threadIdx.y == 0) a.put_gradients(k, g, col, sum, dot);
}

template <class T>
KernelResult make_plain_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand& oy = b[y];
    const Operand& z = b[saved].present() ? b[saved] : oy;
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    if (oy.count() == 0) return make_kernel([] {});
    const auto& p = b.params<DenseParams>();
    const bool only_product =
        p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !b[bias].present() && z.data == oy.data;
    if (only_product) return KernelResult(std::move(product));
    if (has_rows_epilogue(b)) {
        MILLRACE_LET(epilogue, make_rows_epilogue(c, b, z));
        return make_kernel(
            [first = std::shared_ptr<Kernel>(std::move(product)), second = std::shared_ptr<Kernel>(std::move(epilogue))] {
                first->run();
                second->run();
            });
    }
    const int row_tile = p.norm == Norm::batch_train ? oy.rows : 64;
    const EpilogueArgs<T> a{layer_forward<T>(b), z, oy.g, oy.rows, oy.cols, row_tile};
    const dim3 grid(blocks_for(oy.cols, kLanes), blocks_for(oy.rows, row_tile), oy.k * oy.g);
    return make_kernel([=, stream = c.stream, first = std::shared_ptr<Kernel>(std::move(product))] {
        first->run();
        launch(epilogue_kernel<T>, grid, dim3(kLanes, kRows), 0, stream, a);
    });
}

/// From so many rows on: plain_backward_kernel takes 0.04 us a row (H200, 21 us at 512), make_rows_backward less than 7 us.
constexpr int kManyRows = 256;

template <class T>
KernelResult make_plain_backward(Context& c, const Bound& b) {
    using namespace dense_backward;
    const PlainBackwardArgs<T> a{layer_backward<T>(b), b[dz].g, b[dz].rows, b[dz].cols};
    if (b[dz].k * b[dz].g * b[dz].cols == 0) return make_kernel([] {});
    if (a.p.norm == Norm::none && a.rows >= kManyRows) return make_rows_backward(c, b);
    const dim3 grid(blocks_for(a.cols, kLanes), 1, b[dz].k * b[dz].g);
    return make_launch(c, plain_backward_kernel<T>, grid, dim3(kLanes, kRows), 0, a);
}

}  // namespace

KernelResult make_dense_forward(Context& c, const Bound& b) {
    if (fuses_dense_forward(c, b)) return make_fused_dense_forward(c, b);
    return by_real(b[dense_forward::y].dtype, [&]<class T>(T) { return make_plain_forward<T>(c, b); });
}

KernelResult make_dense_backward(Context& c, const Bound& b) {
    if (fuses_backward(c, nullptr, &b)) return make_fused_backward(c, nullptr, &b);
    return by_real(b[dense_backward::dz].dtype, [&]<class T>(T) { return make_plain_backward<T>(c, b); });
}

}  // namespace millrace::ops::cuda
