// Cross-entropy of tokens: one block per position, then one block per member that adds up in a fixed order. Greedy choice.

#include "ops/cuda/context.h"
#include "ops/text/token_sums.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

template <class T>
__global__ void token_loss_kernel(Mat<const T> logits, Mat<const std::int32_t> ids, Mat<const std::int32_t> lengths, States state,
                                  Mat<T> dlogits, Found* found, TokenShape shape, int first, double scale) {
    __shared__ float sums[32];
    __shared__ int counts[32];
    begin_kernel();
    const int row = blockIdx.x, k = blockIdx.z, sequence = row / shape.positions, t = row % shape.positions - first;
    T* gradient = dlogits ? dlogits.row(k, 0, row) : nullptr;
    const bool asked = t >= 0 && t < tokens_of(lengths, k, sequence, shape.tokens);
    const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
    if (!asked || id < 0 || id >= shape.vocabulary) {  // the same for the whole block
        for (int c = threadIdx.x; gradient != nullptr && c < shape.vocabulary; c += blockDim.x) store(gradient + c, 0.0f);
        if (threadIdx.x == 0) found[std::int64_t{k} * gridDim.x + row] = {0, 0, asked};
        return;
    }
    const int all = block_tokens(lengths, k, shape, counts);
    const T* l = logits.row(k, 0, row);
    float most;
    int best;
    block_largest([l](int c) { return load(l + c); }, shape.vocabulary, most, best);
    float part = 0;
    for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x) part += expf(load(l + c) - most);
    const float total = block_sum(part, sums);
    if (threadIdx.x == 0) {
        const float loss = logf(total) - (load(l + id) - most);
        found[std::int64_t{k} * gridDim.x + row] = {loss, best == id, !isfinite(loss)};
    }
    if (gradient == nullptr) return;
    const float share = static_cast<float>(scale / all) * state[k].loss_scale;
    for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x)
        store(gradient + c, (expf(load(l + c) - most) / total - (c == id ? 1.0f : 0.0f)) * share);
}

constexpr int kSumThreads = 1024;

/// One warp per sequence at a time.
__global__ void token_sum_kernel(const Found* found, Mat<const std::int32_t> lengths, States state, Mat<float> tally,
                                 TokenShape shape, TokenLossParams p, bool accumulate) {
    __shared__ double sums[32];
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.x, lane = threadIdx.x % 32;
    found += std::int64_t{k} * shape.sequences * shape.positions + p.first;
    double loss = 0;
    int tokens = 0, right = 0, whole = 0;
    bool bad = false;
    for (int b = threadIdx.x / 32; b < shape.sequences; b += kSumThreads / 32) {
        const int count = tokens_of(lengths, k, b, shape.tokens);
        int correct = 0;
        for (int t = lane; t < count; t += 32) {
            const Found& f = found[std::int64_t{b} * shape.positions + t];
            loss += f.loss;
            correct += static_cast<int>(f.right);
            bad = bad || f.bad != 0;
        }
        right += correct;
        for (int d = 16; d > 0; d /= 2) correct += __shfl_xor_sync(0xffffffffu, correct, d);
        if (lane == 0) {
            tokens += count;
            whole += count > 0 && correct == count;
        }
    }
    loss = block_sum(loss, sums);
    tokens = block_sum(tokens, counts);
    right = block_sum(right, counts);
    whole = block_sum(whole, counts);
    const int any_bad = __syncthreads_or(bad);
    if (threadIdx.x != 0) return;
    MemberState& m = state[k];
    const double mean = tokens > 0 ? loss / tokens : 0;
    if (p.as_loss) {
        m.loss += shape.sequences * mean;
        m.rows += shape.sequences;
    } else {
        m.penalty += p.scale * mean;
    }
    if (any_bad) m.nonfinite = 1;
    if (!tally) return;
    float* to = tally.row(k, 0, 0);
    const double values[kTallyColumns] = {loss, static_cast<double>(tokens), static_cast<double>(right),
                                          static_cast<double>(whole)};
    for (int c = 0; c < kTallyColumns; ++c) to[c] = static_cast<float>(accumulate ? to[c] + values[c] : values[c]);
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

void launch_token_sums(cudaStream_t stream, int members, const Found* found, const Operand& lengths, const Operand& state,
                       const Operand& tally, const TokenShape& shape, const TokenLossParams& params, bool accumulate) {
    launch(token_sum_kernel, dim3(members), dim3(kSumThreads), 0, stream, found, lengths, state, tally, shape, params,
           accumulate);
}

KernelResult make_token_cross_entropy(Context& c, const Bound& b) {
    namespace at = token_cross_entropy;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &l = b[at::lengths], &s = b[at::state], &d = b[at::dlogits],
                  &sums = b[at::tally];
    const auto& p = b.params<TokenLossParams>();
    const TokenShape shape{l.rows, ids.cols, positions_of(logits, l), logits.cols};
    MILLRACE_TRY(check_positions(logits, l, p.first + ids.cols));
    MILLRACE_LET(found, zero_table(c, std::max<std::size_t>(1, sizeof(Found) * static_cast<std::size_t>(logits.k) *
                                                                   static_cast<std::size_t>(logits.rows))));
    return by_real(logits.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, logits, ids, l, s, d, sums, p, shape, found, add = b.accumulates(at::tally)] {
            if (logits.rows > 0)
                launch(token_loss_kernel<T>, dim3(logits.rows, 1, logits.k), threads_for(shape.vocabulary), 0, stream, logits,
                       ids, l, s, d, found, shape, p.first, p.scale);
            launch_token_sums(stream, logits.k, static_cast<const Found*>(found), l, s, sums, shape, p, add);
        });
    });
}

KernelResult make_token_choose(Context& c, const Bound& b) {
    namespace at = token_choose;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &l = b[at::lengths];
    const auto& p = b.params<TokenChooseParams>();
    const TokenShape shape{l.rows, ids.cols, positions_of(logits, l), logits.cols};
    MILLRACE_TRY(check_positions(logits, l, p.first + ids.cols));
    if (logits.cols == 0) return base::Error{"there is no token to choose"};
    if (ids.count() == 0) return make_kernel([] {});
    return by_real(logits.dtype, [&]<class T>(T) {
        return make_launch(c, choose_kernel<T>, dim3(l.rows, 1, logits.k), threads_for(shape.vocabulary), 0, logits, ids, l,
                           shape, p);
    });
}

}  // namespace millrace::ops::cuda
