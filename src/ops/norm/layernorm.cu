// Layer norm.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// One block per row.
template <class T>
__global__ void layernorm_forward_kernel(Mat<const T> x, Mat<const float> gamma, Mat<const float> beta, Mat<float> mean,
                                         Mat<float> inv_std, Mat<T> y, int groups, int cols, float eps) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / groups, g = blockIdx.z % groups;
    const T* in = x.row(k, g, r);
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += load(in + c);
    const float m = block_sum(sum, shared) / static_cast<float>(cols);
    float squares = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float d = load(in + c) - m;
        squares += d * d;
    }
    const float inv = 1 / sqrtf(block_sum(squares, shared) / static_cast<float>(cols) + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        store(y.row(k, g, r) + c, gamma.row(k, g, 0)[c] * (load(in + c) - m) * inv + beta.row(k, g, 0)[c]);
    if (threadIdx.x == 0) {
        *mean.row(k, g, r) = m;
        *inv_std.row(k, g, r) = inv;
    }
}

template <class T>
__global__ void layernorm_input_kernel(Mat<const T> dy, Mat<const T> x, Mat<const float> gamma, Mat<const float> mean,
                                       Mat<const float> inv_std, Mat<T> dx, int groups, int cols, bool accumulate) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / groups, g = blockIdx.z % groups;
    const float m = *mean.row(k, g, r), inv = *inv_std.row(k, g, r);
    const float* scale = gamma.row(k, g, 0);
    float sum = 0, dot = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float d = load(dy.row(k, g, r) + c) * scale[c];
        sum += d;
        dot += d * (load(x.row(k, g, r) + c) - m) * inv;
    }
    sum = block_sum(sum, shared) / static_cast<float>(cols);
    dot = block_sum(dot, shared) / static_cast<float>(cols);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float xhat = (load(x.row(k, g, r) + c) - m) * inv;
        const float v = inv * (load(dy.row(k, g, r) + c) * scale[c] - sum - xhat * dot);
        put(dx.row(k, g, r) + c, v, accumulate);
    }
}

constexpr int kParameterRows = 64, kMostChunks = 1024;  ///< how rows are cut for the sums over them
constexpr int kParameterLanes = 8;

/// 32 columns of one chunk of rows a block: partial [matrix, chunk, 2, cols] = sums of dy and of dy times the normalised x.
template <class T>
__global__ void layernorm_parameter_kernel(Mat<const T> dy, Mat<const T> x, Mat<const float> mean, Mat<const float> inv_std,
                                           float* partial, int groups, int rows, int cols, int chunk_rows) {
    begin_kernel();
    const int c = blockIdx.x * 32 + threadIdx.x, k = blockIdx.z / groups, g = blockIdx.z % groups;
    const int begin = blockIdx.y * chunk_rows, end = min(rows, begin + chunk_rows);
    float sum = 0, dot = 0;
    for (int r = begin + threadIdx.y; c < cols && r < end; r += kParameterLanes) {
        const float d = load(dy.row(k, g, r) + c);
        sum += d;
        dot += d * (load(x.row(k, g, r) + c) - *mean.row(k, g, r)) * *inv_std.row(k, g, r);
    }
    sum = sum_over_y<kParameterLanes>(sum);
    dot = sum_over_y<kParameterLanes>(dot);
    if (threadIdx.y != 0 || c >= cols) return;
    float* to = partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * 2 * cols + c;
    to[0] = sum;
    to[cols] = dot;
}

/// 32 columns a block; chunks in order.
__global__ void layernorm_parameter_sum_kernel(const float* partial, Mat<float> dgamma, Mat<float> dbeta, int groups, int chunks,
                                               int cols, bool add_gamma, bool add_beta) {
    begin_kernel();
    const int c = blockIdx.x * 32 + threadIdx.x, k = blockIdx.z / groups, g = blockIdx.z % groups;
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * chunks * 2 * cols + c;
    float sum = 0, dot = 0;
    for (int chunk = threadIdx.y; c < cols && chunk < chunks; chunk += kParameterLanes) {
        sum += from[static_cast<std::int64_t>(chunk) * 2 * cols];
        dot += from[static_cast<std::int64_t>(chunk) * 2 * cols + cols];
    }
    sum = sum_over_y<kParameterLanes>(sum);
    dot = sum_over_y<kParameterLanes>(dot);
    if (threadIdx.y != 0 || c >= cols) return;
    if (dgamma) put(dgamma.row(k, g, 0) + c, dot, add_gamma);
    if (dbeta) put(dbeta.row(k, g, 0) + c, sum, add_beta);
}

}  // namespace

KernelResult make_layernorm_forward(Context& c, const Bound& b) {
    using namespace layernorm_forward;
    const Operand &ox = b[x], &og = b[gamma], &ob = b[beta], &om = b[mean], &oi = b[inv_std], &oy = b[y];
    if (oy.count() == 0) return make_kernel([] {});
    return by_real(oy.dtype, [&]<class T>(T) {
        return make_launch(c, layernorm_forward_kernel<T>, dim3(oy.rows, 1, oy.k * oy.g), dim3(128), 0, ox, og, ob, om, oi, oy,
                           oy.g, oy.cols, b.params<LayerNormParams>().eps);
    });
}

KernelResult make_layernorm_backward(Context& c, const Bound& b) {
    using namespace layernorm_backward;
    const Operand &ody = b[dy], &ox = b[x], &og = b[gamma], &om = b[mean], &oi = b[inv_std], &odx = b[dx], &odg = b[dgamma],
                  &odb = b[dbeta];
    if (ox.k * ox.g * ox.cols == 0) return make_kernel([] {});
    const int chunk_rows = std::max(kParameterRows, (ox.rows + kMostChunks - 1) / kMostChunks);
    const int chunks = std::max(1, (ox.rows + chunk_rows - 1) / chunk_rows);
    const auto floats =
        static_cast<std::size_t>(ox.k * ox.g) * static_cast<std::size_t>(chunks) * 2 * static_cast<std::size_t>(ox.cols);
    MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
    return by_real(ox.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, ody, ox, og, om, oi, odx, odg, odb, chunks, chunk_rows, partial,
                            add_x = b.accumulates(dx), add_g = b.accumulates(dgamma), add_b = b.accumulates(dbeta)] {
            const auto depth = static_cast<unsigned>(ox.k * ox.g);
            if (odx.present() && ox.rows > 0)
                launch(layernorm_input_kernel<T>, dim3(ox.rows, 1, depth), dim3(128), 0, stream, ody, ox, og, om, oi, odx, ox.g,
                       ox.cols, add_x);
            launch(layernorm_parameter_kernel<T>, dim3(blocks_for(ox.cols, 32), chunks, depth), dim3(32, kParameterLanes), 0,
                   stream, ody, ox, om, oi, partial, ox.g, ox.rows, ox.cols, chunk_rows);
            launch(layernorm_parameter_sum_kernel, dim3(blocks_for(ox.cols, 32), 1, depth), dim3(32, kParameterLanes), 0, stream,
                   partial, odg, odb, ox.g, chunks, ox.cols, add_g, add_b);
        });
    });
}

}  // namespace millrace::ops::cuda
