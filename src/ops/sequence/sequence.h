#pragma once
// The records of a layer over short sequences: attention, then two linear layers, each with a residual and a layer norm behind
// it. Host code. The kernel that does them all writes what they write but the outputs of out_proj and linear2, which only the
// norms read.

#include <span>

#include "ops/op.h"

namespace millrace::ops {

/// The layer's forward pass in the order of its records.
struct SequenceLayer {
    static constexpr std::size_t kRecords = 7;
    explicit SequenceLayer(std::span<const Bound> r)
        : in(r[0]), attention(r[1]), out(r[2]), norm1(r[3]), widen(r[4]), narrow(r[5]), norm2(r[6]) {}

    const Bound &in, &attention, &out, &norm1, &widen, &narrow, &norm2;
};

/// Whether the first kRecords are such a layer: bf16, width 128 with causal heads of 32 columns, 128 or 256 inner columns with
/// GELU, up to 64 positions, no prefix, dropout behind both out_proj and linear2 or nowhere, members or groups but not both in
/// number, every record reading what the ones before it wrote, rows on 16 bytes. What the kernel keeps to itself is named by none
/// of the records behind it.
bool is_sequence_layer(std::span<const Bound> records);

}  // namespace millrace::ops
