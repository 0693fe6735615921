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
inline base::Result<DeviceTable> found_table(Context& c, const tensor::Operand& x) {
    return zero_table(c,
                      std::max<std::size_t>(1, sizeof(Found) * static_cast<std::size_t>(x.k) * static_cast<std::size_t>(x.rows)));
}

/// What the rows left behind, and where its sums go.
struct TokenSums {
    Found* found = nullptr;
    Mat<const std::int32_t> lengths;
    States state;
    Mat<float> tally;  ///< optional
    TokenShape shape{};
    TokenLossParams params;
    bool accumulate = false;
    Mat<const float> total;  ///< of the whole step, optional
};

/// What member k's losses are divided by, by all threads of a block; `shared` as in block_sum.
__device__ inline double block_divisor(const TokenSums& a, int k, int* shared) {
    if (a.total) return a.total.row(k, 0, 0)[0];
    int mine = 0;
    for (int b = threadIdx.x; b < a.shape.sequences; b += blockDim.x) mine += tokens_of(a.lengths, k, b, a.shape.tokens);
    return block_sum(mine, shared);
}

/// The columns of a tally, and how many losses are not finite.
using TokenSum = double[kTallyColumns + 1];

/// Adds the sums of member k to state and tally, by the first `warps` warps of a block, sequences in a fixed order. barrier() is
/// one of these warps, `parts` in shared memory.
template <class Barrier>
__device__ void add_token_sums(const TokenSums& a, int k, int warps, TokenSum* parts, Barrier barrier) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Found* found = a.found + std::int64_t{k} * a.shape.sequences * a.shape.positions + a.params.first;
    TokenSum sum = {};
    for (int b = warp; b < a.shape.sequences; b += warps) {
        const int count = tokens_of(a.lengths, k, b, a.shape.tokens);
        int right = 0;
        for (int t = lane; t < count; t += 32) {
            const Found& f = found[std::int64_t{b} * a.shape.positions + t];
            sum[tally::loss] += f.loss;
            right += static_cast<int>(f.right);
            sum[kTallyColumns] += f.bad;
        }
        sum[tally::right] += right;
        for (int d = 16; d > 0; d /= 2) right += __shfl_xor_sync(0xffffffffu, right, d);
        sum[tally::tokens] += lane == 0 ? count : 0;
        sum[tally::whole] += lane == 0 && count > 0 && right == count;
    }
#pragma unroll
    for (int c = 0; c <= kTallyColumns; ++c) {
        for (int d = 16; d > 0; d /= 2) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], d);
        if (lane == 0) parts[warp][c] = sum[c];
    }
    barrier();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int c = 0; c <= kTallyColumns; ++c) {
            for (int w = 1; w < warps; ++w) sum[c] += parts[w][c];
            if (!a.tally || c == kTallyColumns) continue;
            float& to = a.tally.row(k, 0, 0)[c];
            to = static_cast<float>(a.accumulate ? to + sum[c] : sum[c]);
        }
        MemberState& m = a.state[k];
        const double divisor = a.total ? a.total.row(k, 0, 0)[0] : sum[tally::tokens];
        const double mean = divisor > 0 ? sum[tally::loss] / divisor : 0;
        if (a.params.as_loss) {
            m.loss += (a.total ? double{a.total.row(k, 0, 0)[1]} : a.shape.sequences) * mean;
            m.rows += a.shape.sequences;
        } else {
            m.penalty += a.params.scale * mean;
        }
        if (sum[kTallyColumns] > 0) m.nonfinite = 1;
    }
    barrier();
}

/// In how many parts launch_token_losses can leave the sums of a member's gradients over rows, 0: it cannot.
int token_loss_parts(const tensor::Operand& logits, const tensor::Operand& gradients, const tensor::Operand& bias);
/// What rows from `begin` on leave behind; gradients, bias and losses are optional, logits may lie where gradients go. partial
/// [K][parts][vocabulary], optional: those sums.
void launch_token_losses(cudaStream_t stream, const tensor::Operand& logits, const tensor::Operand& gradients,
                         const tensor::Operand& bias, const tensor::Operand& ids, const tensor::Operand& losses,
                         const TokenSums& to, int begin, float* partial = nullptr);
/// Its sums, one block per member.
void launch_token_sums(cudaStream_t stream, int members, const TokenSums& sums);

}  // namespace millrace::ops::cuda
