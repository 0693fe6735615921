#pragma once
// How many positions of a sequence are filled (ops/text/text.h), and the largest logit of a row.

#include "ops/cuda/device.cuh"
#include "ops/text/sequences.h"

namespace millrace::ops::cuda {

/// Tokens of one sequence, at most `most`.
__device__ inline int tokens_of(const Mat<const std::int32_t>& lengths, int k, int sequence, int most) {
    return min(max(*lengths.row(k, 0, sequence), 0), most);
}

/// Largest of a row's logits logit(0), logit(1), ... and its number (lowest on ties; a NaN is never the largest; 0 when there is
/// nothing else), by all threads of a block of up to 1024. Every thread gets both. Synchronises the block.
template <class Logit>
__device__ void block_largest(Logit logit, int count, float& most, int& best) {
    __shared__ float values[32];
    __shared__ int numbers[32];
    most = -INFINITY;
    best = count;
    for (int c = threadIdx.x; c < count; c += blockDim.x)
        if (const float v = logit(c); v > most || (best == count && v == v)) {
            most = v;
            best = c;
        }
    const auto join = [&](float other, int at) {
        if (other > most || (other == most && at < best)) {
            most = other;
            best = at;
        }
    };
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, d);
        const int at = __shfl_xor_sync(0xffffffffu, best, d);
        join(other, at);
    }
    if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = most;
        numbers[threadIdx.x / 32] = best;
    }
    __syncthreads();
    for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) join(values[w], numbers[w]);
    if (best == count) best = 0;
    __syncthreads();
}

}  // namespace millrace::ops::cuda
