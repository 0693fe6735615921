// Which kernels do an attention record. The choice depends on the shape of one member and on alignment alone.

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

}  // namespace millrace::ops::cuda
