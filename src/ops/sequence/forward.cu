// The kernel of sequence/forward.cuh and how it is launched.

#include <utility>

#include "ops/attention/attention.h"
#include "ops/norm/layernorm.h"
#include "ops/sequence/forward.cuh"
#include "ops/sequence/sequence.h"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {
namespace sequence {
namespace {

using tensor::Operand;

template <class T, int kParts, int kInner, bool kDrops>
__global__ void __launch_bounds__(256, 2) layer_forward_kernel(const __grid_constant__ ForwardArgs a) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int part = static_cast<int>(blockIdx.z) % kParts;
    const Place p{static_cast<int>(blockIdx.z) / kParts, static_cast<int>(blockIdx.y),
                  static_cast<int>(blockIdx.x) * a.positions};
    Forward<T, kParts, kInner, kDrops> block(a, p, part, memory);
    typename Forward<T, kParts, kInner, kDrops>::InWeights in;
    if constexpr (kParts > 1) cluster_arrive();
    block.fill_table();
    __syncthreads();
    int length = 0;
#pragma unroll 1
    for (int begun = 0; begun < 2; ++begun) {
        if (begun == 1) {
            begin_kernel();
            length = __ldcg(a.lengths.row(p.k, p.g, static_cast<int>(blockIdx.x)));
            block.stage_x();
            if constexpr (kDrops) stage_state(a.state, p.k, block.state);
        }
        if (a.early == (begun == 0)) block.fetch_first(in);
    }
    commit_copies();
    block.fetch_middle();
    await_copies<kParts == 1 ? 0 : 1>();
    __syncthreads();
    block.run(in, min(max(length, 0), a.positions));
}

/// How many blocks share a sequence: all multiprocessors should have something to do.
int parts_for(const Context& c, const Operand& y, int sequences) {
    const std::int64_t all = std::int64_t{y.k} * y.g * sequences;
    return dependent_launches() && 2 * all <= c.multiprocessors && std::int64_t{y.k} * 4 <= 65535 ? 4 : 1;
}

template <class T, int kParts, int kInner, bool kDrops>
KernelResult make_forward(Context& c, const ForwardArgs& a, const Operand& x, int sequences) {
    using Block = Forward<T, kParts, kInner, kDrops>;
    const auto kernel = layer_forward_kernel<T, kParts, kInner, kDrops>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(static_cast<unsigned>(sequences), static_cast<unsigned>(x.g), static_cast<unsigned>(x.k * kParts));
    return make_kernel(
        [=, stream = c.stream] { launch_clusters(kernel, grid, dim3(Block::kThreads), kParts, Block::kBytes, stream, a); });
}

void set_vectors(ForwardArgs& a, Vector first, const Operand& from) {
    for (int i = 0; i < from.cols / kWidth; ++i) {
        Matrices<const float> part(from);
        part.data += i * kWidth;
        a.vectors[first + i] = part;
    }
}
/// The kernel has strides in elements, so that they fit into 32 bits.
OperandArgs operand_of(const Operand& o, int groups = 1) {
    return {grouped(o, groups), static_cast<int>(o.present() ? tensor::size_of(o.dtype) : 0)};
}
void set_norm(ForwardArgs& a, int which, const Bound& b) {
    using namespace layernorm_forward;
    const int outputs[kNormOutputs] = {sum, y, mean, inv_std};
    for (int i = 0; i < kNormOutputs; ++i) a.operands[norm_out + kNormOutputs * which + i] = operand_of(b[outputs[i]]);
    a.eps[which] = b.params<LayerNormParams>().eps;
    set_vectors(a, static_cast<Vector>(gammas + which), b[gamma]);
    set_vectors(a, static_cast<Vector>(betas + which), b[beta]);
}

}  // namespace
}  // namespace sequence

Match match_sequence_forward(const Context& c, const Window& records) {
    return sequence::Forward<bf16, 1, 256, true>::kBytes <= c.shared_limit ? match_sequence_layer(records) : Match{};
}

KernelResult make_sequence_forward(Context& c, std::span<const Bound> records) {
    using namespace sequence;
    const SequenceLayer r(records);
    const Bound& attention = r.attention;
    const Operand &x = r.in[dense_forward::x], &lengths = attention[attention_forward::lengths],
                  &inner = r.widen[dense_forward::y];
    ForwardArgs a{};
    a.lengths = grouped(lengths, x.g);
    a.positions = positions_of(x, lengths);
    a.early =
        c.reads_early({&r.in[dense_forward::w], &r.in[dense_forward::bias], &r.out[dense_forward::bias],
                       &r.widen[dense_forward::bias], &r.narrow[dense_forward::bias], &r.norm1[layernorm_forward::gamma],
                       &r.norm1[layernorm_forward::beta], &r.norm2[layernorm_forward::gamma], &r.norm2[layernorm_forward::beta]});
    a.operands[layer_in] = operand_of(x);
    a.operands[in_weights] = operand_of(r.in[dense_forward::w]);
    a.operands[out_weights] = operand_of(r.out[dense_forward::w]);
    a.operands[widen_weights] = operand_of(r.widen[dense_forward::w]);
    a.operands[narrow_weights] = operand_of(r.narrow[dense_forward::w]);
    a.operands[qkv_out] = operand_of(r.in[dense_forward::y]);
    a.operands[attended_out] = operand_of(r.out[dense_forward::x]);
    a.operands[saved_out] = operand_of(r.widen[dense_forward::saved]);
    a.operands[inner_out] = operand_of(inner);
    a.operands[logsumexp_out] = operand_of(attention[attention_forward::logsumexp], x.g);
    set_vectors(a, in_bias, r.in[dense_forward::bias]);
    set_vectors(a, out_bias, r.out[dense_forward::bias]);
    set_vectors(a, narrow_bias, r.narrow[dense_forward::bias]);
    set_vectors(a, widen_bias, r.widen[dense_forward::bias]);
    set_norm(a, 0, r.norm1);
    set_norm(a, 1, r.norm2);
    a.dropout[0] = dropout_of(r.out);
    a.dropout[1] = dropout_of(r.narrow);
    a.state = r.out[dense_forward::state];
    const int parts = parts_for(c, x, lengths.rows);
    const auto make = [&]<class T, bool kDrops>() {
        if (inner.cols == 128)
            return parts == 1 ? make_forward<T, 1, 128, kDrops>(c, a, x, lengths.rows)
                              : make_forward<T, 4, 128, kDrops>(c, a, x, lengths.rows);
        return parts == 1 ? make_forward<T, 1, 256, kDrops>(c, a, x, lengths.rows)
                          : make_forward<T, 4, 256, kDrops>(c, a, x, lengths.rows);
    };
    return by_half(x.dtype, [&]<class T>(T) {
        return a.state.data != nullptr ? make.template operator()<T, true>() : make.template operator()<T, false>();
    });
}

}  // namespace millrace::ops::cuda
