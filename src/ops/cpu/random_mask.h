#pragma once
// The parameters of a dropout mask as the loops want them.

#include <algorithm>

#include "ops/cpu/simd_kernels.h"
#include "ops/op.h"

namespace millrace::ops::cpu {

/// The probability of a layer in one member.
inline float dropout_of(const MemberState& state, float p) { return std::min(p * state.dropout_scale, 0x1.fffffep-1f); }
/// Elements with bits below it are dropped.
inline std::uint32_t dropout_threshold(float p) { return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0); }
inline float dropout_scale(float p) { return static_cast<float>(1.0 / (1.0 - static_cast<double>(p))); }

inline RandomKey random_key(const MemberState& state, std::uint32_t op_number) {
    return RandomKey{state.seed, state.step, state.micro, op_number};
}

struct MaskStart {
    int member, group, row, col;
};

/// Gives a pass over the block of `out` that begins at `start` its mask; nothing without dropout.
template <class Pass, class Params>
void set_dropout(Pass& pass, const Params& params, const tensor::Operand& states, const tensor::Operand& out,
                 const MaskStart& start) {
    if (params.dropout <= 0) return;
    const MemberState& state = state_of(states, start.member);
    const float p = dropout_of(state, params.dropout);
    pass.threshold = dropout_threshold(p);
    pass.dropout_scale = dropout_scale(p);
    pass.random = random_key(state, params.op_number);
    pass.element_stride = static_cast<std::uint64_t>(out.cols);
    pass.element = (static_cast<std::uint64_t>(start.group) * out.rows + start.row) * pass.element_stride + start.col;
}

}  // namespace millrace::ops::cpu
