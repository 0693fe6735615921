// Attention within sequences: one block per head of a sequence, which holds what it reads in shared memory as float. A warp works
// on four rows at a time, so that an element fetched from shared memory serves four sums. Every sum has a fixed order.

#include "ops/attention/attention.h"
#include "ops/cuda/context.h"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kRows = 4;  ///< of a warp at a time: the lanes of a float4
constexpr int kMostWarps = 16;

struct Shape {
    int positions, heads, width, prefix;
    bool causal;
    float scale;

    /// Positions that position i sees are the first so many of the filled ones.
    __device__ int seen(int i, int filled) const { return causal ? min(filled, max(i + 1, prefix)) : filled; }
    __host__ __device__ int stride() const { return width + 1; }  ///< of a row in shared memory: no bank twice
};

__device__ inline float4 zero4() { return make_float4(0, 0, 0, 0); }
__device__ inline void add_product(float4& sum, const float4& a, float b) {
    sum.x += a.x * b;
    sum.y += a.y * b;
    sum.z += a.z * b;
    sum.w += a.w * b;
}
__device__ inline float& part(float4& v, int r) { return (&v.x)[r]; }
__device__ inline float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
__device__ inline float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/// rows of one head's columns into shared memory, by the whole block.
template <class T>
__device__ void fetch(const T* from, std::int64_t stride_row, int rows, const Shape& shape, float* to) {
    for (int i = threadIdx.x; i < rows * shape.width; i += blockDim.x) {
        const int row = i / shape.width, d = i % shape.width;
        to[row * shape.stride() + d] = load(from + row * stride_row + d);
    }
}

/// Four rows of a matrix in shared memory side by side, by one warp; rows from `filled` on are the last.
__device__ inline void gather_four(const float* from, int first, int filled, const Shape& shape, float4* to) {
    for (int d = threadIdx.x % 32; d < shape.width; d += 32) {
        float4 v;
#pragma unroll
        for (int r = 0; r < kRows; ++r) part(v, r) = from[min(first + r, filled - 1) * shape.stride() + d];
        to[d] = v;
    }
}

template <class T>
__device__ void clear_rows(T* to, std::int64_t stride_row, int begin, int end, int width) {
    for (int i = threadIdx.x; i < (end - begin) * width; i += blockDim.x)
        store(to + (begin + i / width) * stride_row + i % width, 0.0f);
}

/// Dynamic shared memory: per warp four queries [width] and four rows of weights [positions] as float4; queries, keys, values.
template <class T>
__global__ void attention_forward_kernel(Mat<const T> qkv, Mat<const std::int32_t> lengths, Mat<float> logsumexp, Mat<T> out,
                                         Shape shape) {
    extern __shared__ float4 memory[];
    begin_kernel();
    const int k = blockIdx.z, sequence = blockIdx.x / shape.heads, head = blockIdx.x % shape.heads;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, all = shape.heads * shape.width;
    const int filled = shape.prefix + tokens_of(lengths, k, sequence, shape.positions - shape.prefix);
    const std::int64_t row = std::int64_t{sequence} * shape.positions;
    float4 *four = memory + warp * (shape.width + shape.positions), *weights = four + shape.width;
    float* queries = reinterpret_cast<float*>(memory + warps * (shape.width + shape.positions));
    float *keys = queries + shape.positions * shape.stride(), *values = keys + shape.positions * shape.stride();
    const T* from = qkv.row(k, 0, row) + head * shape.width;
    fetch(from, qkv.stride_row, filled, shape, queries);
    fetch(from + all, qkv.stride_row, filled, shape, keys);
    fetch(from + 2 * all, qkv.stride_row, filled, shape, values);
    __syncthreads();
    for (int first = warp * kRows; first < filled; first += warps * kRows) {
        const int most = shape.seen(min(first + kRows, filled) - 1, filled);
        gather_four(queries, first, filled, shape, four);
        __syncwarp();
        float top[kRows] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[kRows] = {};
        for (int j = lane; j < most; j += 32) {
            float4 score = zero4();
            for (int d = 0; d < shape.width; ++d) add_product(score, four[d], keys[j * shape.stride() + d]);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                part(score, r) = j < shape.seen(first + r, filled) ? part(score, r) * shape.scale : -INFINITY;
                top[r] = fmaxf(top[r], part(score, r));
            }
            weights[j] = score;
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) top[r] = warp_max(top[r]);
        for (int j = lane; j < most; j += 32) {
            float4 weight = weights[j];
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                part(weight, r) = expf(part(weight, r) - top[r]);
                sum[r] += part(weight, r);
            }
            weights[j] = weight;
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r] = warp_sum(sum[r]);
        __syncwarp();
        for (int d = lane; d < shape.width; d += 32) {
            float4 total = zero4();
            for (int j = 0; j < most; ++j) add_product(total, weights[j], values[j * shape.stride() + d]);
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (first + r < filled) store(out.row(k, 0, row + first + r) + head * shape.width + d, part(total, r) / sum[r]);
        }
        if (lane == 0) {
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (first + r < filled) logsumexp.row(k, 0, row + first + r)[head] = top[r] + logf(sum[r]);
        }
        __syncwarp();
    }
    clear_rows(out.row(k, 0, row) + head * shape.width, out.stride_row, filled, shape.positions, shape.width);
    clear_rows(logsumexp.row(k, 0, row) + head, logsumexp.stride_row, filled, shape.positions, 1);
}

/// What the backward pass holds in shared memory.
struct Held {
    float *queries, *keys, *values, *up;  ///< [positions][width + 1]; up: dout
    float *logsumexp, *mean;              ///< [positions]; mean: sum over j of weight_ij dweight_ij
    float4 *left, *right;                 ///< of one warp, [width]: four rows side by side
    float4 *weights, *gradients;          ///< of one warp, [positions]
};

/// dq of four positions, and their means.
template <class T>
__device__ void query_gradient(const Held& m, const Shape& shape, int first, int filled, T* dq, std::int64_t stride_row) {
    const int lane = threadIdx.x % 32, most = shape.seen(min(first + kRows, filled) - 1, filled);
    gather_four(m.queries, first, filled, shape, m.left);
    gather_four(m.up, first, filled, shape, m.right);
    __syncwarp();
    float mean[kRows] = {};
    for (int j = lane; j < most; j += 32) {
        float4 score = zero4(), gradient = zero4();
        for (int d = 0; d < shape.width; ++d) {
            add_product(score, m.left[d], m.keys[j * shape.stride() + d]);
            add_product(gradient, m.right[d], m.values[j * shape.stride() + d]);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int i = min(first + r, filled - 1);
            const float weight = j < shape.seen(i, filled) ? expf(part(score, r) * shape.scale - m.logsumexp[i]) : 0;
            part(score, r) = weight;
            mean[r] += weight * part(gradient, r);
        }
        m.weights[j] = score;
        m.gradients[j] = gradient;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        mean[r] = warp_sum(mean[r]);
        if (lane == 0 && first + r < filled) m.mean[first + r] = mean[r];
    }
    for (int j = lane; j < most; j += 32) {
        float4 weight = m.weights[j], gradient = m.gradients[j];
#pragma unroll
        for (int r = 0; r < kRows; ++r) part(gradient, r) = part(weight, r) * (part(gradient, r) - mean[r]) * shape.scale;
        m.gradients[j] = gradient;
    }
    __syncwarp();
    for (int d = lane; d < shape.width; d += 32) {
        float4 total = zero4();
        for (int j = 0; j < most; ++j) add_product(total, m.gradients[j], m.keys[j * shape.stride() + d]);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
            if (first + r < filled) store(dq + (first + r) * stride_row + d, part(total, r));
    }
    __syncwarp();
}

/// dk and dv of four positions; the means of all are there.
template <class T>
__device__ void key_gradient(const Held& m, const Shape& shape, int first, int filled, T* dk, T* dv, std::int64_t stride_row) {
    const int lane = threadIdx.x % 32;
    const int begin = shape.causal && first >= shape.prefix ? first : 0;  // earlier positions do not see these
    gather_four(m.keys, first, filled, shape, m.left);
    gather_four(m.values, first, filled, shape, m.right);
    __syncwarp();
    for (int i = begin + lane; i < filled; i += 32) {
        float4 score = zero4(), gradient = zero4();
        for (int d = 0; d < shape.width; ++d) {
            add_product(score, m.left[d], m.queries[i * shape.stride() + d]);
            add_product(gradient, m.right[d], m.up[i * shape.stride() + d]);
        }
        const int seen = shape.seen(i, filled);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float weight = first + r < seen ? expf(part(score, r) * shape.scale - m.logsumexp[i]) : 0;
            part(score, r) = weight;
            part(gradient, r) = weight * (part(gradient, r) - m.mean[i]) * shape.scale;
        }
        m.weights[i] = score;
        m.gradients[i] = gradient;
    }
    __syncwarp();
    for (int d = lane; d < shape.width; d += 32) {
        float4 key = zero4(), value = zero4();
        for (int i = begin; i < filled; ++i) {
            add_product(key, m.gradients[i], m.queries[i * shape.stride() + d]);
            add_product(value, m.weights[i], m.up[i * shape.stride() + d]);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r)
            if (first + r < filled) {
                store(dk + (first + r) * stride_row + d, part(key, r));
                store(dv + (first + r) * stride_row + d, part(value, r));
            }
    }
    __syncwarp();
}

template <class T>
__global__ void attention_backward_kernel(Mat<const T> dout, Mat<const T> qkv, Mat<const std::int32_t> lengths,
                                          Mat<const float> logsumexp, Mat<T> dqkv, Shape shape) {
    extern __shared__ float4 memory[];
    begin_kernel();
    const int k = blockIdx.z, sequence = blockIdx.x / shape.heads, head = blockIdx.x % shape.heads;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, all = shape.heads * shape.width;
    const int filled = shape.prefix + tokens_of(lengths, k, sequence, shape.positions - shape.prefix);
    const std::int64_t row = std::int64_t{sequence} * shape.positions;
    const int matrix = shape.positions * shape.stride();
    Held m;
    m.left = memory + warp * 2 * (shape.width + shape.positions);
    m.right = m.left + shape.width;
    m.weights = m.right + shape.width;
    m.gradients = m.weights + shape.positions;
    m.queries = reinterpret_cast<float*>(memory + warps * 2 * (shape.width + shape.positions));
    m.keys = m.queries + matrix;
    m.values = m.keys + matrix;
    m.up = m.values + matrix;
    m.logsumexp = m.up + matrix;
    m.mean = m.logsumexp + shape.positions;
    const T* from = qkv.row(k, 0, row) + head * shape.width;
    fetch(from, qkv.stride_row, filled, shape, m.queries);
    fetch(from + all, qkv.stride_row, filled, shape, m.keys);
    fetch(from + 2 * all, qkv.stride_row, filled, shape, m.values);
    fetch(dout.row(k, 0, row) + head * shape.width, dout.stride_row, filled, shape, m.up);
    for (int i = threadIdx.x; i < filled; i += blockDim.x) m.logsumexp[i] = logsumexp.row(k, 0, row + i)[head];
    __syncthreads();
    T* to = dqkv.row(k, 0, row) + head * shape.width;
    for (int first = warp * kRows; first < filled; first += warps * kRows)
        query_gradient(m, shape, first, filled, to, dqkv.stride_row);
    __syncthreads();
    for (int first = warp * kRows; first < filled; first += warps * kRows)
        key_gradient(m, shape, first, filled, to + all, to + 2 * all, dqkv.stride_row);
    for (int p = 0; p < 3; ++p) clear_rows(to + p * all, dqkv.stride_row, filled, shape.positions, shape.width);
}

struct Plan {
    Shape shape;
    unsigned threads = 32;
    std::size_t shared = 0;
};

/// As many warps as the rows keep busy in equal rounds and as shared memory has room for. `matrices` and `vectors` are shared by
/// the block, every warp has `fours` times a row and a column of its own.
base::Result<Plan> plan_of(const Context& c, const AttentionParams& p, const Operand& qkv, const Operand& lengths, int matrices,
                           int vectors, int fours) {
    MILLRACE_TRY(check_positions(qkv, lengths, p.prefix));
    if (p.heads < 1 || qkv.cols < 1 || qkv.cols % (3 * p.heads) != 0)
        return base::Error{std::to_string(qkv.cols) + " columns are not queries, keys and values of " + std::to_string(p.heads) +
                           " heads"};
    Plan plan;
    const int width = qkv.cols / 3 / p.heads, positions = positions_of(qkv, lengths);
    plan.shape = {positions, p.heads, width, p.prefix, p.causal, 1 / std::sqrt(static_cast<float>(width))};
    const int groups = std::max(1, (positions + kRows - 1) / kRows), rounds = (groups + kMostWarps - 1) / kMostWarps;
    const auto bytes = [&](int warps) {
        return sizeof(float4) * static_cast<std::size_t>(warps) * static_cast<std::size_t>(fours) *
                   static_cast<std::size_t>(width + positions) +
               sizeof(float) * static_cast<std::size_t>(positions) * static_cast<std::size_t>(matrices * (width + 1) + vectors);
    };
    int warps = (groups + rounds - 1) / rounds;
    while (warps > 1 && bytes(warps) > c.shared_limit) --warps;
    if (bytes(warps) > c.shared_limit)
        return base::Error{"attention over " + std::to_string(positions) + " positions with " + std::to_string(width) +
                           " columns a head needs " + std::to_string(bytes(warps)) +
                           " bytes of shared memory, a block of this GPU has " + std::to_string(c.shared_limit) +
                           "; use shorter sequences or more heads"};
    plan.threads = static_cast<unsigned>(32 * warps);
    plan.shared = bytes(warps);
    return plan;
}

}  // namespace

KernelResult make_attention_forward(Context& c, const Bound& b) {
    namespace at = attention_forward;
    const Operand &qkv = b[at::qkv], &l = b[at::lengths], &logsumexp = b[at::logsumexp], &out = b[at::out];
    MILLRACE_LET(plan, plan_of(c, b.params<AttentionParams>(), qkv, l, 3, 0, 1));
    if (out.count() == 0) return make_kernel([] {});
    return by_real(qkv.dtype, [&]<class T>(T) -> KernelResult {
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(attention_forward_kernel<T>)));
        return make_launch(c, attention_forward_kernel<T>, dim3(l.rows * plan.shape.heads, 1, qkv.k), dim3(plan.threads),
                           plan.shared, qkv, l, logsumexp, out, plan.shape);
    });
}

KernelResult make_attention_backward(Context& c, const Bound& b) {
    namespace at = attention_backward;
    const Operand &dout = b[at::dout], &qkv = b[at::qkv], &l = b[at::lengths], &logsumexp = b[at::logsumexp], &dqkv = b[at::dqkv];
    MILLRACE_LET(plan, plan_of(c, b.params<AttentionParams>(), qkv, l, 4, 2, 2));
    if (dqkv.count() == 0) return make_kernel([] {});
    return by_real(qkv.dtype, [&]<class T>(T) -> KernelResult {
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(attention_backward_kernel<T>)));
        return make_launch(c, attention_backward_kernel<T>, dim3(l.rows * plan.shape.heads, 1, qkv.k), dim3(plan.threads),
                           plan.shared, dout, qkv, l, logsumexp, dqkv, plan.shape);
    });
}

}  // namespace millrace::ops::cuda
