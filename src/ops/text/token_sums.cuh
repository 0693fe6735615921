#pragma once
// What the losses of tokens share on the device: what a row leaves behind, and its sums.

#include "ops/text/sequences.cuh"
#include "ops/text/text.h"

namespace millrace::ops::cuda {

struct TokenShape {
    int sequences, tokens, positions, vocabulary;
};

/// What the row of a token leaves for the sum, [K][rows].
struct Found {
    float loss;
    std::uint32_t right, bad;
};

/// Whole warps, as many as there is work for.
inline dim3 threads_for(int vocabulary) { return dim3(std::clamp((vocabulary + 31) / 32 * 32, 32, 256)); }

/// Tokens of a member, by all threads of a block; `shared` as in block_sum.
__device__ inline int block_tokens(const Mat<const std::int32_t>& lengths, int k, const TokenShape& shape, int* shared) {
    int mine = 0;
    for (int b = threadIdx.x; b < shape.sequences; b += blockDim.x) mine += tokens_of(lengths, k, b, shape.tokens);
    return block_sum(mine, shared);
}

/// Adds what the rows left behind to state and tally, sequences in a fixed order.
void launch_token_sums(cudaStream_t stream, int members, const Found* found, const tensor::Operand& lengths,
                       const tensor::Operand& state, const tensor::Operand& tally, const TokenShape& shape,
                       const TokenLossParams& params, bool accumulate);

}  // namespace millrace::ops::cuda
