#pragma once
// The vocabulary head on tensor cores (bf16 and f16), logits in tiles alone: what its launches share.

#include "ops/text/token_sums.cuh"
#include "ops/tile/mma.cuh"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cuda::vocabulary {

/// Sums are only rescaled when a logit exceeds the reference by this much (e^6 leaves f32 and bf16 their precision), unless the
/// largest one is to be found.
constexpr float kMargin = 6;

using Bits = std::uint16_t;  ///< an element of bf16 or f16

/// What the rows of the batch leave for the gradient of the weights, [K][rows up to a multiple of 128].
struct RowInfo {
    float logsumexp;      ///< in units of log 2; infinite unless the row predicts a token of the vocabulary
    std::int32_t target;  ///< -1: none
};

/// The id that a row predicts, -1: none, -2: one outside of the vocabulary.
__device__ inline int target_of(const Mat<const std::int32_t>& ids, const Mat<const std::int32_t>& lengths, int k, int row,
                                const TokenShape& shape, int first) {
    const int sequence = row / shape.positions, t = row - sequence * shape.positions - first;
    if (t < 0 || t >= tokens_of(lengths, k, sequence, shape.tokens)) return -1;
    const std::int32_t id = ids.row(k, 0, sequence)[t];
    return id >= 0 && id < shape.vocabulary ? id : -2;
}

/// Sum over the four lanes that share a row.
__device__ inline float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/// What the launches of one vocabulary_loss share.
struct Args : TokenSums {
    Mat<const Bits> x, weight;
    Mat<const float> bias;
    Mat<const std::int32_t> ids;
    Mat<float> losses;
    Mat<Bits> dx;               ///< optional
    Mat<float> dweight, dbias;  ///< each optional
    int members = 0, rows = 0, cols = 0;
    bool exact = false;  ///< the largest logit's entry is wanted
    bool add_dx = false, add_weight = false, add_bias = false;
    int parts = 1;                        ///< of the vocabulary for a block of rows
    int blocks = 1;                       ///< of the kernel for the weights, which share its tiles evenly
    float* sums = nullptr;                ///< handed over from block to block
    std::int32_t* handed_over = nullptr;  ///< [blocks][8]: whether they are there, zeros
    float* shares = nullptr;              ///< [K]: factor of a token's gradients in the mean over the member's, 0 without tokens
    RowInfo* info = nullptr;
    float* squares = nullptr;  ///< [K][square_parts]: sums of squares of dweight, for the norm; null: not computed
    int square_parts = 0;

    [[nodiscard]] __host__ __device__ int padded_rows() const { return (rows + 127) / 128 * 128; }
    [[nodiscard]] __device__ RowInfo* info_of(int k) const { return info + std::int64_t{k} * padded_rows(); }
};

/// Leaves the share of member k's tokens, times the scale of its loss, and returns it; by all threads of a block, `shared` as in
/// block_sum.
__device__ inline float put_share(const Args& a, int k, int* shared) {
    const double divisor = block_divisor(a, k, shared);
    const float share = divisor > 0 ? static_cast<float>(a.params.scale / divisor) * a.state[k].loss_scale : 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) a.shares[k] = share;
    return share;
}

/// Leaves what follows from a row's largest logit, the sum of exponentials over it, the target's logit and the entry of the
/// largest. Rows up to the end of the last tile get their info.
__device__ inline void put_row(const Args& a, int k, int row, int target, float top, float sum, float logit, int best) {
    const float log_sum = logf(sum), loss = log_sum - (logit - top);
    a.info_of(k)[row] = target < 0 ? RowInfo{INFINITY, -1} : RowInfo{(top + log_sum) * kLog2E, target};
    if (row >= a.rows) return;
    a.found[std::int64_t{k} * a.rows + row] =
        target < 0 ? Found{0, 0, target == -2} : Found{loss, best == target, !isfinite(loss)};
    *a.losses.row(k, 0, row) = target < 0 ? 0 : loss;
}

/// The sum over a warp is number `part` of member k's sums of squares.
__device__ inline void put_squares(const Args& a, int k, int part, float sum) {
    if (a.squares == nullptr) return;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) a.squares[std::int64_t{k} * a.square_parts + part] = sum;
}

namespace warpgroups {
struct Maps;  // warpgroups.cuh
}
/// How many clusters of `parts` blocks of the forward kernel run at once.
int active_clusters(const Context& c, int parts);
/// Logits and their sums: info, found, shares, losses and dx. `type`: of the elements.
KernelResult make_forward(Context& c, const Args& args, const warpgroups::Maps& maps, tensor::DType type);
/// dweight and dbias from info; the warps that copy also add up what was found.
KernelResult make_weight_gradient(Context& c, const Args& args, const warpgroups::Maps& maps, tensor::DType type);

/// The same for all shapes and precisions. What `found` points to stays valid as long as the kernel lives.
KernelResult make_plain(Context& c, const Bound& b, const TokenSums& found);

}  // namespace millrace::ops::cuda::vocabulary
