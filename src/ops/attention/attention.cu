// Which kernels do an attention record, and that of one new position. The choice depends on the shape of one member and on
// alignment alone.

#include "ops/attention/attention.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// What a direction has no slot for is absent.
template <bool kForward>
KernelResult make_attention(Context& c, const AttentionParams& p, const Operand& qkv, const Operand& dout, const Operand& lengths,
                            const Operand& logsumexp, const Operand& delta, const Operand& out, const Operand& dqkv, bool early) {
    const int width = qkv.cols / 3 / p.heads;
    const AttentionShape shape{
        positions_of(qkv, lengths), p.heads, width, p.prefix, p.causal, 1 / std::sqrt(static_cast<float>(width))};
    const bool whole = width * tensor::size_of(qkv.dtype) % 16 == 0 && whole_runs(qkv) && whole_runs(dout) && whole_runs(out) &&
                       whole_runs(dqkv);
    return by_real(qkv.dtype, [&]<class Real>(Real) -> KernelResult {
        const AttentionArgs<Real> a{qkv, dout, lengths, logsumexp, delta, out, dqkv, shape, lengths.rows, qkv.k, whole, early};
        if constexpr (sizeof(Real) == 2)
            if (takes_flash(c, shape)) return kForward ? make_flash_forward(c, a) : make_flash_backward(c, a);
        return make_plain_attention<kForward>(c, a);
    });
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
    using namespace attention_forward;
    return make_attention<true>(c, b.params<AttentionParams>(), b[qkv], {}, b[lengths], b[logsumexp], {}, b[out], {},
                                c.reads_early({&b[lengths]}));
}

KernelResult make_attention_backward(Context& c, const Bound& b) {
    using namespace attention_backward;
    const bool early = c.reads_early({&b[lengths], &b[qkv], &b[out], &b[logsumexp]});
    return make_attention<false>(c, b.params<AttentionParams>(), b[qkv], b[dout], b[lengths], b[logsumexp], b[delta], b[out],
                                 b[dqkv], early);
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
