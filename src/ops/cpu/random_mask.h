#pragma once
// The parameters of a dropout mask as the loops want them.

#include "ops/cpu/simd_kernels.h"
#include "ops/member_state.h"

namespace millrace::ops::cpu {

/// Elements with bits below it are dropped.
inline std::uint32_t dropout_threshold(float p) { return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0); }
inline float dropout_scale(float p) { return static_cast<float>(1.0 / (1.0 - static_cast<double>(p))); }

inline RandomKey random_key(const MemberState& state, std::uint32_t op_number) {
    return RandomKey{state.seed, state.step, state.micro, op_number};
}

}  // namespace millrace::ops::cpu
