#pragma once
// The records of a layer over short sequences: attention, then two linear layers, each with a residual and a layer norm behind
// it, and those of its way back. Host code. The kernel that does a layer writes what its records write but the outputs of
// out_proj and linear2, which only the norms read.

#include <span>

#include "ops/rewrite.h"

namespace millrace::ops {

/// The layer's forward pass in the order of its records.
struct SequenceLayer {
    static constexpr std::size_t kRecords = 7;
    explicit SequenceLayer(std::span<const Bound> r)
        : in(r[0]), attention(r[1]), out(r[2]), norm1(r[3]), widen(r[4]), narrow(r[5]), norm2(r[6]) {}

    const Bound &in, &attention, &out, &norm1, &widen, &narrow, &norm2;
};

/// Whether the first kRecords are such a layer: bf16 or f16, width 128 with causal heads of 32 columns, 128 or 256 inner columns
/// with GELU, up to 64 positions, no prefix, dropout behind both out_proj and linear2 or nowhere, members or groups but not both
/// in number, every record reading what the ones before it wrote, rows on 16 bytes.
bool is_sequence_layer(std::span<const Bound> records);
/// They as one; the outputs of out_proj and linear2 are inner.
Match match_sequence_layer(const Window& window);

/// The records of its way back by name, in their order. dx of a norm is dz of the linear layer below it, but for dropout.
struct LayerChain {
    static constexpr std::size_t kRecords = 11;
    explicit LayerChain(std::span<const Bound> records);

    std::span<const Bound> r;
    const Bound &norm2 = r[0], &narrow = r[1],
                &narrow_product = r[2];                ///< layernorm_backward, dense_backward, linear_dgrad of linear2
    const Bound &widen = r[3], &widen_product = r[4];  ///< of linear1
    const Bound &norm1 = r[5], &project = r[6], &project_product = r[7];
    const Bound &attention = r[8], &attend = r[9], &attend_product = r[10];
    int members, groups, positions = 0;
};

/// Whether the first kRecords of `records` are such a way back, as above, of 16 positions at least.
bool is_layer_chain(std::span<const Bound> records);
/// They as one; inner are the gradients of linear1's output, of norm1's output and of attention's, and delta.
Match match_layer_chain(const Window& window);

/// An operand of attention as the other records see it: groups that it has as members are groups again.
inline tensor::Operand grouped(tensor::Operand o, int groups) {
    if (groups == 1) return o;
    o.g = groups;
    o.stride_g = o.stride_k;
    o.k = 1;
    return o;
}

namespace sequence_forward_rewrite {
extern const Rewrite kRewrite;
}
namespace sequence_backward_rewrite {
extern const Rewrite kRewrite;
}

}  // namespace millrace::ops
