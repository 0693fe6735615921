#pragma once
// How many positions of a sequence are filled (ops/text/text.h).

#include "ops/cuda/device.cuh"
#include "ops/text/sequences.h"

namespace millrace::ops::cuda {

/// Tokens of one sequence, at most `most`.
__device__ inline int tokens_of(const Mat<const std::int32_t>& lengths, int k, int sequence, int most) {
    return min(max(*lengths.row(k, 0, sequence), 0), most);
}

}  // namespace millrace::ops::cuda
