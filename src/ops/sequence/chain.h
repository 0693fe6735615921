#pragma once
// The records of a layer's way back in a row: attention and feed-forward, each with a residual and a norm behind it. Host code.

#include <span>

#include "ops/attention/attention.h"
#include "ops/dense/dense.h"
#include "ops/norm/layernorm.h"
#include "ops/rewrite.h"
#include "ops/sequence/operands.h"

namespace millrace::ops {

/// Limits of the kernel that does them all: columns of the feed-forward part (this or half of it), positions of a sequence.
constexpr int kMostInner = 256, kLeastPositions = 16;

/// The records by name, in their order. dx of a norm is dz of the linear layer below it, but for dropout.
struct LayerChain {
    static constexpr std::size_t kRecords = 11;
    explicit LayerChain(std::span<const Bound> records);

    const Bound &norm2, &narrow, &narrow_product;  ///< layernorm_backward, then dense_backward and linear_dgrad of linear2
    const Bound &widen, &widen_product;            ///< of linear1
    const Bound &norm1, &project, &project_product;
    const Bound &attention, &attend, &attend_product;
    int members, groups, positions;
};

/// Whether the first kRecords of `records` are such a layer: bf16 or f16, causal, dropout as in ops/sequence/sequence.h, every
/// record reading what the one before it wrote, rows on 16 bytes, groups or members but not both in number.
bool is_layer_chain(std::span<const Bound> records);
/// They as one; inner are the gradients of linear1's output, of norm1's output and of attention's, and delta.
Match match_layer_chain(const Window& window);

}  // namespace millrace::ops
