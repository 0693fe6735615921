// Which kernels do an attention record, and that of one new position. The choice depends on the shape of one member and on
// alignment alone.

#include "ops/attention/attention.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

AttentionShape shape_of(const AttentionParams& p, const Operand& qkv, const Operand& lengths) {
    const int width = qkv.cols / 3 / p.heads;
    return {positions_of(qkv, lengths), p.heads, width, p.prefix, p.causal, 1 / std::sqrt(static_cast<float>(width))};
}

template <class... Operands>
bool whole_heads(const AttentionShape& shape, const Operand& qkv, const Operands&... operands) {
    return shape.width * tensor::size_of(qkv.dtype) % 16 == 0 && whole_runs(qkv) && (whole_runs(operands) && ...);
}

constexpr int kCachedThreads = 128;

/// A head of one sequence a block: scores of all positions in shared memory, then the sum of values by columns.
template <class T>
__global__ void attention_cached_kernel(Mat<const T> qkv, const std::int32_t* position, Mat<T> cache, Mat<T> out, int all,
                                        int width, int positions) {
    extern __shared__ float scores[];  // [positions]
    __shared__ float shared[32];
    begin_kernel();
    const int h = blockIdx.x, b = blockIdx.y, k = blockIdx.z, last = min(max(*position, 0), positions - 1);
    const T* in = qkv.row(k, 0, b) + h * width;
    const auto row = [&](int p) { return cache.row(k, 0, static_cast<std::int64_t>(b) * positions + p) + h * width; };
    for (int d = threadIdx.x; d < width; d += kCachedThreads) {
        row(last)[d] = in[all + d];
        row(last)[all + d] = in[2 * all + d];
    }
    __syncthreads();
    const float scale = rsqrtf(static_cast<float>(width));
    float top = -INFINITY;
    for (int p = threadIdx.x; p <= last; p += kCachedThreads) {
        float sum = 0;
        for (int d = 0; d < width; ++d) sum += load(in + d) * load(row(p) + d);
        scores[p] = sum * scale;
        top = fmaxf(top, scores[p]);
    }
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < kCachedThreads / 32; ++w) top = fmaxf(top, shared[w]);
    __syncthreads();
    float sum = 0;
    for (int p = threadIdx.x; p <= last; p += kCachedThreads) {
        scores[p] = expf(scores[p] - top);
        sum += scores[p];
    }
    sum = block_sum(sum, shared);
    for (int d = threadIdx.x; d < width; d += kCachedThreads) {
        float value = 0;
        for (int p = 0; p <= last; ++p) value += scores[p] * load(row(p) + all + d);
        store(out.row(k, 0, b) + h * width + d, value / sum);
    }
}

}  // namespace

KernelResult make_attention_forward(Context& c, const Bound& b) {
    namespace at = attention_forward;
    const Operand &qkv = b[at::qkv], &l = b[at::lengths], &logsumexp = b[at::logsumexp], &out = b[at::out];
    const AttentionShape shape = shape_of(b.params<AttentionParams>(), qkv, l);
    return by_real(qkv.dtype, [&]<class Real>(Real) -> KernelResult {
        const AttentionArgs<Real> a{
            qkv, {}, l, logsumexp, {}, out, {}, shape, l.rows, qkv.k, whole_heads(shape, qkv, out), c.reads_early({&l})};
        if constexpr (sizeof(Real) == 2)
            if (takes_flash(c, shape)) return make_flash_forward(c, a);
        return make_plain_attention<true>(c, a);
    });
}

KernelResult make_attention_backward(Context& c, const Bound& b) {
    namespace at = attention_backward;
    const Operand &dout = b[at::dout], &qkv = b[at::qkv], &l = b[at::lengths], &logsumexp = b[at::logsumexp], &out = b[at::out],
                  &delta = b[at::delta], &dqkv = b[at::dqkv];
    const AttentionShape shape = shape_of(b.params<AttentionParams>(), qkv, l);
    return by_real(qkv.dtype, [&]<class Real>(Real) -> KernelResult {
        const bool early = c.reads_early({&l, &qkv, &out, &logsumexp});
        const AttentionArgs<Real> a{
            qkv, dout, l, logsumexp, delta, out, dqkv, shape, l.rows, qkv.k, whole_heads(shape, qkv, dout, out, dqkv), early};
        if constexpr (sizeof(Real) == 2)
            if (takes_flash(c, shape)) return make_flash_backward(c, a);
        return make_plain_attention<false>(c, a);
    });
}

KernelResult make_attention_cached(Context& c, const Bound& b) {
    namespace at = attention_cached;
    const Operand &in = b[at::qkv], &cache = b[at::cache], &out = b[at::out];
    const int heads = b.params<CachedAttentionParams>().heads, all = in.cols / 3, positions = cache.rows / in.rows;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(positions);
    if (bytes > 47 * 1024)
        return base::Error{"attention_cached over " + std::to_string(positions) + " positions: at most 12,032 fit"};
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        return make_launch(c, attention_cached_kernel<T>, dim3(heads, in.rows, in.k), dim3(kCachedThreads), bytes, in,
                           static_cast<const std::int32_t*>(b[at::position].data), cache, out, all, all / heads, positions);
    });
}

}  // namespace millrace::ops::cuda
