// The kernel of sequence/forward.cuh and how it is launched.

#include <utility>

#include "ops/attention/attention.h"
#include "ops/dense/dense.h"
#include "ops/sequence/forward.cuh"
#include "ops/sequence/sequence.h"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {
namespace sequence {
namespace {

using tensor::Operand;

template <int kParts, int kInner>
__global__ void __launch_bounds__(256, 2) layer_forward_kernel(const __grid_constant__ ForwardArgs a) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int matrix = static_cast<int>(blockIdx.z) / kParts, part = static_cast<int>(blockIdx.z) % kParts;
    const Place p{matrix / a.groups, matrix % a.groups, static_cast<int>(blockIdx.x) * a.positions};
    Forward<kParts, kInner> block(a, p, part, memory);
    typename Forward<kParts, kInner>::InWeights in;
    if constexpr (kParts > 1) cluster_arrive();
    int length = 0;
#pragma unroll 1
    for (int begun = 0; begun < 2; ++begun) {
        if (begun == 1) {
            begin_kernel();
            length = __ldcg(a.lengths.row(p.k, p.g, static_cast<int>(blockIdx.x)));
            block.stage_x();
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
    return dependent_launches() && 2 * all <= c.multiprocessors && std::int64_t{y.k} * y.g * 4 <= 65535 ? 4 : 1;
}

template <int kParts, int kInner>
KernelResult make_forward(Context& c, const ForwardArgs& a, int matrices, int sequences) {
    using Block = Forward<kParts, kInner>;
    const auto kernel = layer_forward_kernel<kParts, kInner>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(static_cast<unsigned>(sequences), 1, static_cast<unsigned>(matrices * kParts));
    return make_kernel(
        [=, stream = c.stream] { launch_clusters(kernel, grid, dim3(Block::kThreads), kParts, Block::kBytes, stream, a); });
}

Linear linear_of(const Bound& b) { return {b[dense_forward::w], b[dense_forward::y]}; }
NormArgs norm_of(const Bound& b) {
    using namespace layernorm_forward;
    return {b[x], b[mean], b[inv_std], b[sum], b[y], b.params<LayerNormParams>().eps};
}
void set_vectors(ForwardArgs& a, Vector first, const Operand& from) {
    for (int i = 0; i < from.cols / kWidth; ++i) {
        Matrices<const float> part(from);
        part.data += i * kWidth;
        a.vectors[first + i] = part;
    }
}
/// Groups that a record has as members.
template <class T>
Matrices<T> grouped(const Operand& o, int groups) {
    Matrices<T> m(o);
    if (groups > 1) m.stride_g = std::exchange(m.stride_k, 0);
    return m;
}

}  // namespace
}  // namespace sequence

std::size_t match_sequence_forward(const Context& c, std::span<const Bound> records) {
    const bool takes = is_sequence_layer(records) && sequence::Forward<1, 256>::kBytes <= c.shared_limit;
    return takes ? SequenceLayer::kRecords : 0;
}

KernelResult make_sequence_forward(Context& c, std::span<const Bound> records) {
    using namespace sequence;
    const SequenceLayer r(records);
    const Bound& attention = r.attention;
    const Operand &x = r.in[dense_forward::x], &lengths = attention[attention_forward::lengths],
                  &inner = r.widen[dense_forward::y];
    ForwardArgs a{x,
                  linear_of(r.in),
                  linear_of(r.out),
                  linear_of(r.widen),
                  linear_of(r.narrow),
                  r.out[dense_forward::x],
                  r.widen[dense_forward::saved],
                  grouped<const std::int32_t>(lengths, x.g),
                  grouped<float>(attention[attention_forward::logsumexp], x.g),
                  {norm_of(r.norm1), norm_of(r.norm2)},
                  {},
                  x.g,
                  positions_of(x, lengths),
                  c.early};
    set_vectors(a, in_bias, r.in[dense_forward::bias]);
    set_vectors(a, out_bias, r.out[dense_forward::bias]);
    set_vectors(a, narrow_bias, r.narrow[dense_forward::bias]);
    set_vectors(a, gammas, r.norm1[layernorm_forward::gamma]);
    set_vectors(a, static_cast<Vector>(gammas + 1), r.norm2[layernorm_forward::gamma]);
    set_vectors(a, betas, r.norm1[layernorm_forward::beta]);
    set_vectors(a, static_cast<Vector>(betas + 1), r.norm2[layernorm_forward::beta]);
    set_vectors(a, widen_bias, r.widen[dense_forward::bias]);
    const int matrices = x.k * x.g, parts = parts_for(c, x, lengths.rows);
    if (inner.cols == 128)
        return parts == 1 ? make_forward<1, 128>(c, a, matrices, lengths.rows)
                          : make_forward<4, 128>(c, a, matrices, lengths.rows);
    return parts == 1 ? make_forward<1, 256>(c, a, matrices, lengths.rows) : make_forward<4, 256>(c, a, matrices, lengths.rows);
}

}  // namespace millrace::ops::cuda
