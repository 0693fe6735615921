#pragma once
// The records of a layer over short sequences: attention, then two linear layers, each with a residual and a layer norm behind
// it. Host code. The kernel that does them all writes what they write but the outputs of out_proj and linear2, which only the
// norms read.

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
namespace sequence_forward_rewrite {
extern const Rewrite kRewrite;
}
namespace sequence_backward_rewrite {
extern const Rewrite kRewrite;
}

}  // namespace millrace::ops
