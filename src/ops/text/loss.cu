// Cross-entropy of tokens: one block per position, then one block per member that adds up in a fixed order. Greedy choice.

#include "ops/cuda/context.h"
#include "ops/text/token_sums.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// One block per row, from `begin` on; a gradient is 0 where no token is predicted. Logits may lie where gradients go.
template <class T>
__global__ void token_loss_kernel(Mat<const T> logits, Mat<T> gradients, Mat<const float> bias, Mat<const std::int32_t> ids,
                                  Mat<float> logsumexp, const __grid_constant__ TokenSums a, int begin) {
    __shared__ float sums[32];
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.z, row = begin + blockIdx.x, sequence = row / a.shape.positions,
              t = row % a.shape.positions - a.params.first;
    const T* l = logits.row(k, 0, blockIdx.x);
    T* gradient = gradients ? gradients.row(k, 0, blockIdx.x) : nullptr;
    Found& out = a.found[std::int64_t{k} * a.shape.sequences * a.shape.positions + row];
    const bool asked = t >= 0 && t < tokens_of(a.lengths, k, sequence, a.shape.tokens);
    const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
    if (!asked || id < 0 || id >= a.shape.vocabulary) {  // the same for the whole block
        for (int c = threadIdx.x; gradient != nullptr && c < a.shape.vocabulary; c += blockDim.x) store(gradient + c, 0.0f);
        if (threadIdx.x == 0) out = {0, 0, asked};
        if (threadIdx.x == 0 && logsumexp) *logsumexp.row(k, 0, row) = 0;
        return;
    }
    const float* shift = bias ? bias.row(k, 0, 0) : nullptr;
    const auto logit = [l, shift](int c) { return load(l + c) + (shift != nullptr ? shift[c] : 0); };
    float most, part = 0;
    int best;
    block_largest(logit, a.shape.vocabulary, most, best);
    for (int c = threadIdx.x; c < a.shape.vocabulary; c += blockDim.x) part += expf(logit(c) - most);
    const float total = block_sum(part, sums);
    if (threadIdx.x == 0) {
        const float loss = logf(total) - (logit(id) - most);
        out = {loss, best == id, !isfinite(loss)};
        if (logsumexp) *logsumexp.row(k, 0, row) = most + logf(total);
    }
    if (gradient == nullptr) return;
    const int all = block_tokens(a.lengths, k, a.shape, counts);
    const float share = static_cast<float>(a.params.scale / all) * a.state[k].loss_scale;
    for (int c = threadIdx.x; c < a.shape.vocabulary; c += blockDim.x)
        store(gradient + c, (expf(logit(c) - most) / total - (c == id ? 1.0f : 0.0f)) * share);
}

/// Whole warps, as many as there is work for.
dim3 threads_for(int vocabulary) { return dim3(std::clamp((vocabulary + 31) / 32 * 32, 32, 256)); }

constexpr int kSumThreads = 1024;

__global__ void token_sum_kernel(const __grid_constant__ TokenSums a) {
    __shared__ TokenSum parts[kSumThreads / 32];
    begin_kernel();
    add_token_sums(a, blockIdx.x, kSumThreads / 32, parts, [] { __syncthreads(); });
}

/// One block per sequence.
template <class T>
__global__ void choose_kernel(Mat<const T> logits, Mat<std::int32_t> ids, Mat<std::int32_t> lengths, TokenShape shape,
                              TokenChooseParams p) {
    begin_kernel();
    const int sequence = blockIdx.x, k = blockIdx.z;
    std::int32_t* words = ids.row(k, 0, sequence);
    const int length = min(max(*lengths.row(k, 0, sequence), 0), shape.tokens);
    if (length == shape.tokens || (length > 0 && words[length - 1] == p.end)) return;  // the same for the whole block
    float most;
    int best;
    const T* l = logits.row(k, 0, std::int64_t{sequence} * shape.positions + p.first + length);
    block_largest([l](int c) { return load(l + c); }, shape.vocabulary, most, best);
    if (threadIdx.x != 0) return;
    words[length] = best;
    *lengths.row(k, 0, sequence) = length + 1;
}

}  // namespace

void launch_token_losses(cudaStream_t stream, const Operand& logits, const Operand& gradients, const Operand& bias,
                         const Operand& ids, const Operand& logsumexp, const TokenSums& to, int begin) {
    if (logits.rows == 0) return;
    by_real(logits.dtype, [&]<class T>(T) {
        launch(token_loss_kernel<T>, dim3(logits.rows, 1, logits.k), threads_for(to.shape.vocabulary), 0, stream, logits,
               gradients, bias, ids, logsumexp, to, begin);
    });
}

void launch_token_sums(cudaStream_t stream, int members, const TokenSums& sums) {
    launch(token_sum_kernel, dim3(members), dim3(kSumThreads), 0, stream, sums);
}

KernelResult make_token_cross_entropy(Context& c, const Bound& b) {
    namespace at = token_cross_entropy;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &lengths = b[at::lengths];
    const auto& p = b.params<TokenLossParams>();
    const TokenShape shape{lengths.rows, ids.cols, positions_of(logits, lengths), logits.cols};
    MILLRACE_LET(found, found_table(c, logits));
    const TokenSums sums{static_cast<Found*>(found), lengths, b[at::state], b[at::tally], shape, p, b.accumulates(at::tally)};
    return make_kernel([stream = c.stream, logits, ids, gradients = b[at::dlogits], found, sums] {
        launch_token_losses(stream, logits, gradients, {}, ids, {}, sums, 0);
        launch_token_sums(stream, logits.k, sums);
    });
}

KernelResult make_token_choose(Context& c, const Bound& b) {
    namespace at = token_choose;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &l = b[at::lengths];
    const auto& p = b.params<TokenChooseParams>();
    const TokenShape shape{l.rows, ids.cols, positions_of(logits, l), logits.cols};
    if (ids.count() == 0) return make_kernel([] {});
    return by_real(logits.dtype, [&]<class T>(T) {
        return make_launch(c, choose_kernel<T>, dim3(l.rows, 1, logits.k), threads_for(shape.vocabulary), 0, logits, ids, l,
                           shape, p);
    });
}

}  // namespace millrace::ops::cuda
