#include "ops/dense/batch_norm.cuh"

#include "ops/cuda/context.h"

namespace millrace::ops::cuda::batch_norm {
namespace {

using tensor::Operand;

constexpr int kLanes = 32, kLines = 8;  // a block: 32 columns, 8 rows at a time

/// What a thread of a kernel over a chunk of rows works on.
struct Place {
    int k, g, col, begin, end;
    __device__ Place(int groups, int rows, int chunk_rows)
        : k(static_cast<int>(blockIdx.z) / groups),
          g(static_cast<int>(blockIdx.z) % groups),
          col(static_cast<int>(blockIdx.x) * kLanes + static_cast<int>(threadIdx.x)),
          begin(static_cast<int>(blockIdx.y) * chunk_rows),
          end(min(rows, begin + chunk_rows)) {}
};

__global__ void __launch_bounds__(kLanes* kLines)
    moments_kernel(Mat<const float> z, int groups, int rows, int cols, const __grid_constant__ Chunks chunks) {
    begin_kernel();
    const Place at(groups, rows, chunks.rows);
    const bool valid = at.col < cols;
    float sum = 0, squares = 0;
    for (int r = at.begin + threadIdx.y; valid && r < at.end; r += kLines) sum += z.row(at.k, at.g, r)[at.col];
    const float mean = sum_over_y<kLines>(sum) / static_cast<float>(at.end - at.begin);
    for (int r = at.begin + threadIdx.y; valid && r < at.end; r += kLines) {
        const float d = z.row(at.k, at.g, r)[at.col] - mean;
        squares += d * d;
    }
    squares = sum_over_y<kLines>(squares);
    if (!valid || threadIdx.y != 0) return;
    float* to = chunks.values.row(at.k, at.g, blockIdx.y) + at.col;
    to[0] = mean;
    to[cols] = squares;
}

struct Moments {
    float mean, squares;
};

/// Of all rows of a column, from those of the chunks. Every thread of the block calls it.
__device__ Moments join_moments(const Chunks& c, const Place& at, int cols, int rows) {
    const bool valid = at.col < cols;
    const auto weight = [&](int chunk) { return static_cast<float>(min(c.rows, rows - chunk * c.rows)); };
    float sum = 0, squares = 0;
    for (int i = threadIdx.y; valid && i < c.count; i += kLines) sum += weight(i) * c.values.row(at.k, at.g, i)[at.col];
    const float mean = sum_over_y<kLines>(sum) / static_cast<float>(rows);
    for (int i = threadIdx.y; valid && i < c.count; i += kLines) {
        const float* from = c.values.row(at.k, at.g, i) + at.col;
        const float apart = from[0] - mean;
        squares += from[cols] + weight(i) * apart * apart;
    }
    return {mean, sum_over_y<kLines>(squares)};
}

template <class T>
struct ForwardArgs : LayerForward<T> {
    Mat<const float> z;
    Chunks chunks;
    int groups, rows, cols;
};

template <class T>
__global__ void __launch_bounds__(kLanes* kLines) apply_forward_kernel(const __grid_constant__ ForwardArgs<T> a) {
    begin_kernel();
    const Place at(a.groups, a.rows, kMomentRows);
    const int k = at.k, g = at.g, col = at.col;
    const Moments moments = join_moments(a.chunks, at, a.cols, a.rows);
    if (col >= a.cols) return;
    const auto n = static_cast<float>(a.rows);
    const float var = moments.squares / n, inv = 1 / sqrtf(var + a.p.eps), mean = moments.mean;
    if (blockIdx.y == 0 && threadIdx.y == 0) {
        a.inv_std.row(k, g, 0)[col] = inv;
        const float whole = mean + (a.bias ? a.bias.row(k, g, 0)[col] : 0),
                    unbiased = a.rows > 1 ? moments.squares / (n - 1) : var;
        if (isfinite(whole) && isfinite(unbiased)) {
            float &rm = a.running_mean.row(k, g, 0)[col], &rv = a.running_var.row(k, g, 0)[col];
            rm += a.p.momentum * (whole - rm);
            rv += a.p.momentum * (unbiased - rv);
        }
    }
    const float gamma = a.gamma.row(k, g, 0)[col], beta = a.beta.row(k, g, 0)[col];
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const DropoutRule rule = dropout_rule(key);
#pragma unroll 4
    for (int r = at.begin + static_cast<int>(threadIdx.y); r < at.end; r += kLines) {
        const float xhat = rounded((a.z.row(k, g, r)[col] - mean) * inv, static_cast<const T*>(nullptr));
        store(a.saved.row(k, g, r) + col, xhat);
        const std::uint64_t element = (static_cast<std::uint64_t>(g) * a.rows + r) * a.cols + col;
        store(a.y.row(k, g, r) + col, activate(gamma * xhat + beta, a.p.activation) * dropout_factor(key, rule, element));
    }
}

template <class T>
struct BackwardArgs : LayerBackward<T> {
    Chunks chunks;
    int groups, rows, cols;
};

/// The layer's numbers of a column.
template <class T>
struct Column {
    float gamma, beta;
    DropoutKey key;
    DropoutRule rule;
    __device__ Column(const BackwardArgs<T>& a, const Place& at)
        : gamma(a.gamma.row(at.k, at.g, 0)[at.col]),
          beta(a.beta.row(at.k, at.g, 0)[at.col]),
          key(dropout_key({a.p.dropout, a.p.op_number}, a.state, at.k)),
          rule(dropout_rule(key)) {}
    __device__ float du(const BackwardArgs<T>& a, const Place& at, int r, float& xhat) const {
        xhat = load(a.saved.row(at.k, at.g, r) + at.col);
        const std::uint64_t element = (static_cast<std::uint64_t>(at.g) * a.rows + r) * a.cols + at.col;
        return gradient_at(a, key, rule, load(a.dy.row(at.k, at.g, r) + at.col), xhat, gamma, beta, element);
    }
};

template <class T>
__global__ void __launch_bounds__(kLanes* kLines) gradient_sums_kernel(const __grid_constant__ BackwardArgs<T> a) {
    begin_kernel();
    const Place at(a.groups, a.rows, a.chunks.rows);
    const bool valid = at.col < a.cols;
    float sum = 0, dot = 0;
    if (valid) {
        const Column<T> column(a, at);
#pragma unroll 4
        for (int r = at.begin + static_cast<int>(threadIdx.y); r < at.end; r += kLines) {
            float xhat;
            const float du = column.du(a, at, r, xhat);
            sum += du;
            dot += du * xhat;
        }
    }
    sum = sum_over_y<kLines>(sum);
    dot = sum_over_y<kLines>(dot);
    if (!valid || threadIdx.y != 0) return;
    float* to = a.chunks.values.row(at.k, at.g, blockIdx.y) + at.col;
    to[0] = sum;
    to[a.cols] = dot;
}

template <class T>
__global__ void __launch_bounds__(kLanes* kLines) apply_backward_kernel(const __grid_constant__ BackwardArgs<T> a) {
    begin_kernel();
    const Place at(a.groups, a.rows, kMomentRows);
    const bool valid = at.col < a.cols;
    float sum = 0, dot = 0;
    for (int i = threadIdx.y; valid && i < a.chunks.count; i += kLines) {
        const float* from = a.chunks.values.row(at.k, at.g, i) + at.col;
        sum += from[0];
        dot += from[a.cols];
    }
    sum = sum_over_y<kLines>(sum);
    dot = sum_over_y<kLines>(dot);
    if (!valid) return;
    if (blockIdx.y == 0 && threadIdx.y == 0) a.put_gradients(at.k, at.g, at.col, sum, dot);
    const Column<T> column(a, at);
    const float n = static_cast<float>(a.rows), factor = column.gamma * a.inv_std.row(at.k, at.g, 0)[at.col] / n;
#pragma unroll 4
    for (int r = at.begin + static_cast<int>(threadIdx.y); r < at.end; r += kLines) {
        float xhat;
        const float du = column.du(a, at, r, xhat);
        store(a.dz.row(at.k, at.g, r) + at.col, factor * (n * du - sum - xhat * dot));
    }
}

dim3 grid_of(const Operand& o, int chunk_rows) {
    // Without rows one block still writes the gradients of the parameters.
    return dim3(blocks_for(o.cols, kLanes), std::max(1u, blocks_for(o.rows, chunk_rows)), static_cast<unsigned>(o.k * o.g));
}

template <class T>
BackwardArgs<T> backward_args(const Bound& b, const Chunks& chunks) {
    const Operand& dy = b[dense_backward::dy];
    return {layer_backward<T>(b), chunks, dy.g, dy.rows, dy.cols};
}

/// The chunks of z.
KernelPtr make_moments(Context& c, const Operand& z, const Chunks& chunks) {
    return make_launch(c, moments_kernel, grid_of(z, chunks.rows), dim3(kLanes, kLines), 0, z, z.g, z.rows, z.cols, chunks);
}

/// The chunks of dense_backward or batch_moments_backward.
KernelPtr make_gradient_sums(Context& c, const Bound& b, const Chunks& chunks) {
    const Operand& dy = b[dense_backward::dy];
    return by_real(dy.dtype, [&]<class T>(T) {
        return make_launch(c, gradient_sums_kernel<T>, grid_of(dy, chunks.rows), dim3(kLanes, kLines), 0,
                           backward_args<T>(b, chunks));
    });
}

/// Those that a slot holds.
Chunks chunks_of(const Operand& moments) { return {moments, moments.rows, kMomentRows}; }

}  // namespace

base::Result<DeviceTable> make_product_memory(Context& c, const Operand& y, Operand& z) {
    z = y;
    z.dtype = tensor::DType::f32;
    z.stride_row = z.cols;
    z.stride_g = std::int64_t{z.rows} * z.cols;
    z.stride_k = z.stride_g * z.g;
    MILLRACE_LET(memory, zero_table(c, sizeof(float) * static_cast<std::size_t>(z.stride_k * z.k)));
    z.data = memory.get();
    return memory;
}

base::Result<DeviceTable> make_chunks(Context& c, const Operand& layer, int rows, Chunks& chunks) {
    Operand numbers = layer;
    numbers.rows = std::max(1, static_cast<int>(blocks_for(layer.rows, rows)));
    numbers.cols = 2 * layer.cols;
    MILLRACE_LET(table, make_product_memory(c, numbers, numbers));
    chunks = {numbers, numbers.rows, rows};
    return table;
}

KernelPtr make_apply_forward(Context& c, const Bound& b, const Operand& z, const Chunks& chunks) {
    return by_real(b[dense_forward::y].dtype, [&]<class T>(T) {
        const ForwardArgs<T> a{layer_forward<T>(b), z, chunks, z.g, z.rows, z.cols};
        return make_launch(c, apply_forward_kernel<T>, grid_of(z, kMomentRows), dim3(kLanes, kLines), 0, a);
    });
}

KernelPtr make_apply_backward(Context& c, const Bound& b, const Chunks& chunks) {
    const Operand& dz = b[dense_backward::dz];
    return by_real(dz.dtype, [&]<class T>(T) {
        return make_launch(c, apply_backward_kernel<T>, grid_of(dz, kMomentRows), dim3(kLanes, kLines), 0,
                           backward_args<T>(b, chunks));
    });
}

KernelResult make_forward(Context& c, const Bound& b, const Operand& z) {
    Chunks chunks{};
    MILLRACE_LET(table, make_chunks(c, z, kMomentRows, chunks));
    return in_order({make_moments(c, z, chunks), make_apply_forward(c, b, z, chunks)}, table);
}

KernelResult make_backward(Context& c, const Bound& b) {
    Chunks chunks{};
    MILLRACE_LET(table, make_chunks(c, b[dense_backward::dz], kMomentRows, chunks));
    return in_order({make_gradient_sums(c, b, chunks), make_apply_backward(c, b, chunks)}, table);
}

}  // namespace millrace::ops::cuda::batch_norm

namespace millrace::ops::cuda {

KernelResult make_batch_moments(Context& c, const Bound& b) {
    return batch_norm::make_moments(c, b[batch_moments::z], batch_norm::chunks_of(b[batch_moments::moments]));
}
KernelResult make_batch_apply(Context& c, const Bound& b) {
    return batch_norm::make_apply_forward(c, b, b[batch_apply::z], batch_norm::chunks_of(b[batch_apply::moments]));
}
KernelResult make_batch_moments_backward(Context& c, const Bound& b) {
    return batch_norm::make_gradient_sums(c, b, batch_norm::chunks_of(b[batch_moments_backward::sums]));
}
KernelResult make_batch_apply_backward(Context& c, const Bound& b) {
    return batch_norm::make_apply_backward(c, b, batch_norm::chunks_of(b[batch_apply_backward::sums]));
}

}  // namespace millrace::ops::cuda
