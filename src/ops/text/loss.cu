// Cross-entropy of tokens: one block per position, then one block per member that adds up in a fixed order. Greedy choice.

#include <climits>

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/text/token_sums.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

template <class T>
__device__ float exponential(float x) {
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

/// The largest of some logits with its number (lowest on ties; a NaN is never the largest), and the sum of exp(logit - largest),
/// NaN where a logit is.
struct Largest {
    float most = -INFINITY, total = 0;
    int best = INT_MAX;

    __device__ void join(const Largest& other) {
        const float both = fmaxf(most, other.most);
        const auto shifted = [both](const Largest& l) { return l.most == both ? l.total : l.total * expf(l.most - both); };
        total = shifted(*this) + shifted(other);
        if (other.most > most || (other.most == most && other.best < best)) best = other.best;
        most = both;
    }
    template <class T, int V>
    __device__ void add(const float (&v)[V], int first) {
        float here = most;
#pragma unroll
        for (int i = 0; i < V; ++i)
            if (v[i] > here || (best == INT_MAX && v[i] == v[i])) {
                here = v[i];
                best = first + i;
            }
        if (here > most) total *= expf(most - here);
        most = here;
        const float reference = most == -INFINITY ? 0 : most;
#pragma unroll
        for (int i = 0; i < V; ++i) total += exponential<T>(v[i] - reference);
    }
};

/// Of all threads of a block of up to 1024, in a fixed order.
__device__ Largest block_join(Largest own) {
    __shared__ Largest shared[32];
    for (int d = 16; d > 0; d /= 2) {
        const Largest other{__shfl_down_sync(0xffffffffu, own.most, d), __shfl_down_sync(0xffffffffu, own.total, d),
                            __shfl_down_sync(0xffffffffu, own.best, d)};
        if ((threadIdx.x & 31) + d < 32) own.join(other);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
    __syncthreads();
    own = shared[0];
    for (int w = 1; w < static_cast<int>(blockDim.x) / 32; ++w) own.join(shared[w]);
    return own;
}

/// One block per row, from `begin` on; a gradient is 0 where no token is predicted. Logits may lie where gradients go. V: whole
/// runs of logits.
template <class T, int V>
__global__ void token_loss_kernel(Mat<const T> logits, Mat<T> gradients, Mat<const float> bias, Mat<const std::int32_t> ids,
                                  Mat<float> logsumexp, const __grid_constant__ TokenSums a, int begin) {
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.z, row = begin + blockIdx.x, sequence = row / a.shape.positions,
              t = row % a.shape.positions - a.params.first, step = V * static_cast<int>(blockDim.x),
              first = V * static_cast<int>(threadIdx.x);
    const T* l = logits.row(k, 0, blockIdx.x);
    T* gradient = gradients ? gradients.row(k, 0, blockIdx.x) : nullptr;
    Found& out = a.found[std::int64_t{k} * a.shape.sequences * a.shape.positions + row];
    const bool asked = t >= 0 && t < tokens_of(a.lengths, k, sequence, a.shape.tokens);
    const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
    if (!asked || id < 0 || id >= a.shape.vocabulary) {  // the same for the whole block
        constexpr float kNothing[V] = {};
        for (int c = first; gradient != nullptr && c < a.shape.vocabulary; c += step) store_run<V>(gradient + c, kNothing);
        if (threadIdx.x == 0) out = {0, 0, asked};
        if (threadIdx.x == 0 && logsumexp) *logsumexp.row(k, 0, row) = 0;
        return;
    }
    const float* shift = bias ? bias.row(k, 0, 0) : nullptr;
    const auto load_logits = [l, shift](int c, float(&v)[V]) {
        load_run<V>(l + c, v);
        if (shift == nullptr) return;
        float more[V];
        load_run<V>(shift + c, more);
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] += more[i];
    };
    const float wanted = load(l + id) + (shift != nullptr ? shift[id] : 0);
    Largest found;
    for (int c = first; c < a.shape.vocabulary; c += step) {
        float v[V];
        load_logits(c, v);
        found.template add<T>(v, c);
    }
    found = block_join(found);
    if (threadIdx.x == 0) {
        const float loss = logf(found.total) - (wanted - found.most);
        out = {loss, found.best == id, !isfinite(loss)};
        if (logsumexp) *logsumexp.row(k, 0, row) = found.most + logf(found.total);
    }
    if (gradient == nullptr) return;
    const float share = static_cast<float>(a.params.scale / block_divisor(a, k, counts)) * a.state[k].loss_scale,
                factor = share / found.total;
    for (int c = first; c < a.shape.vocabulary; c += step) {
        float v[V];
        load_logits(c, v);
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] = exponential<T>(v[i] - found.most) * factor - (c + i == id ? share : 0.0f);
        store_run<V>(gradient + c, v);
    }
}

/// The same for so few logits that a block holds a row's in registers, kHeld in a thread: the row is read once and has one
/// exponential a logit. A block takes `rows_each` of `rows` rows. partial, [K][blocks][vocabulary], gets the sums of the
/// gradients over them; null: these are not wanted.
constexpr int kHeld = 32, kFewThreads = 320, kMostThreads = 512;

template <class T, int V, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == kFewThreads ? 2 : 1)
    token_rows_kernel(Mat<const T> logits, Mat<T> gradients, Mat<const float> bias, Mat<const std::int32_t> ids,
                      Mat<float> logsumexp, const __grid_constant__ TokenSums a, int begin, int rows, int rows_each,
                      float* partial) {
    constexpr int kRuns = kHeld / V;
    __shared__ int counts[32], best;
    __shared__ float largest[32], totals[32];
    begin_kernel();
    const int k = blockIdx.z, step = V * static_cast<int>(blockDim.x), first = V * static_cast<int>(threadIdx.x),
              warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32, words = a.shape.vocabulary;
    const float* shift = bias ? bias.row(k, 0, 0) : nullptr;
    const float share = gradients ? static_cast<float>(a.params.scale / block_divisor(a, k, counts)) * a.state[k].loss_scale : 0;
    if (threadIdx.x == 0) best = INT_MAX;
    float sums[kRuns][V] = {};
    const int last = min(rows, static_cast<int>(blockIdx.x + 1) * rows_each);
    for (int r = static_cast<int>(blockIdx.x) * rows_each; r < last; ++r) {
        const int row = begin + r, sequence = row / a.shape.positions, t = row % a.shape.positions - a.params.first;
        const T* l = logits.row(k, 0, r);
        T* gradient = gradients ? gradients.row(k, 0, r) : nullptr;
        Found& out = a.found[std::int64_t{k} * a.shape.sequences * a.shape.positions + row];
        float e[kRuns][V] = {}, most = -INFINITY, total = 0;
#pragma unroll
        for (int j = 0; j < kRuns; ++j)
            if (const int c = first + j * step; c < words) load_run<V>(l + c, e[j]);
        const bool asked = t >= 0 && t < tokens_of(a.lengths, k, sequence, a.shape.tokens);
        const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
        if (!asked || id < 0 || id >= words) {  // the same for the whole block
            constexpr float kNothing[V] = {};
            for (int c = first; gradient != nullptr && c < words; c += step) store_run<V>(gradient + c, kNothing);
            if (threadIdx.x == 0) out = {0, 0, asked};
            if (threadIdx.x == 0 && logsumexp) *logsumexp.row(k, 0, row) = 0;
            continue;
        }
        const float wanted = threadIdx.x == 0 ? load(l + id) + (shift != nullptr ? shift[id] : 0) : 0;
#pragma unroll
        for (int j = 0; j < kRuns; ++j) {
            const int c = first + j * step;
            if (c >= words) continue;
            float more[V] = {};
            if (shift != nullptr) load_run<V>(shift + c, more);
#pragma unroll
            for (int i = 0; i < V; ++i) most = fmaxf(most, e[j][i] += more[i]);  // a NaN is never the largest
        }
        const float own = most;
        for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
        if (threadIdx.x % 32 == 0) largest[warp] = most;
        __syncthreads();
        for (int w = 0; w < warps; ++w) most = fmaxf(most, largest[w]);
        if (own == most) {
            int lowest = INT_MAX;
#pragma unroll
            for (int j = kRuns - 1; j >= 0; --j)
#pragma unroll
                for (int i = V - 1; i >= 0; --i)
                    if (first + j * step < words && e[j][i] == most) lowest = first + j * step + i;
            atomicMin(&best, lowest);
        }
        const float reference = most == -INFINITY ? 0 : most;
#pragma unroll
        for (int j = 0; j < kRuns; ++j) {
            if (first + j * step >= words) continue;
#pragma unroll
            for (int i = 0; i < V; ++i) total += e[j][i] = exponential<T>(e[j][i] - reference);
        }
        for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
        if (threadIdx.x % 32 == 0) totals[warp] = total;
        __syncthreads();
        total = 0;
        for (int w = 0; w < warps; ++w) total += totals[w];
        if (threadIdx.x == 0) {
            const float loss = logf(total) - (wanted - most);
            out = {loss, best == id, !isfinite(loss)};
            best = INT_MAX;
            if (logsumexp) *logsumexp.row(k, 0, row) = most + logf(total);
        }
        if (gradient == nullptr) continue;
        const float factor = share / total;
#pragma unroll
        for (int j = 0; j < kRuns; ++j) {
            const int c = first + j * step;
            if (c >= words) continue;
#pragma unroll
            for (int i = 0; i < V; ++i) {
                e[j][i] = e[j][i] * factor - (c + i == id ? share : 0.0f);
                sums[j][i] += e[j][i];
            }
            store_run<V>(gradient + c, e[j]);
        }
    }
    float* to = partial + (static_cast<std::int64_t>(k) * gridDim.x + blockIdx.x) * words;
#pragma unroll
    for (int j = 0; j < kRuns; ++j)
        if (const int c = first + j * step; partial != nullptr && c < words) store_run<V>(to + c, sums[j]);
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
    const T* l = logits.row(k, 0, std::int64_t{sequence} * shape.positions + p.first + length);
    Largest found;
    for (int c = threadIdx.x; c < shape.vocabulary; c += blockDim.x) {
        const float v[1] = {load(l + c)};
        found.template add<T>(v, c);
    }
    found = block_join(found);
    if (threadIdx.x != 0) return;
    words[length] = found.best == INT_MAX ? 0 : found.best;  // all of them are NaN
    *lengths.row(k, 0, sequence) = length + 1;
}

}  // namespace

/// Of token_rows_kernel: about as many threads in all as run at once on an H200, whatever the device and the members.
static int rows_threads(int words) { return (words + 32 * kHeld - 1) / (32 * kHeld) * 32; }
static int rows_of_block(const Operand& logits) {
    constexpr int kThreadsInAll = 264 * 320;
    const int blocks = std::max(1, kThreadsInAll / rows_threads(logits.cols));
    return (logits.rows + blocks - 1) / blocks;
}
static bool has_whole_runs(const Operand& logits, const Operand& gradients, const Operand& bias) {
    const int run = static_cast<int>(16 / tensor::size_of(logits.dtype));
    return logits.cols % run == 0 && whole_runs(logits) && whole_runs(gradients) && whole_runs(bias);
}

int token_loss_parts(const Operand& logits, const Operand& gradients, const Operand& bias) {
    if (logits.rows == 0 || rows_threads(logits.cols) > kMostThreads || !has_whole_runs(logits, gradients, bias)) return 0;
    return static_cast<int>(blocks_for(logits.rows, rows_of_block(logits)));
}

void launch_token_losses(cudaStream_t stream, const Operand& logits, const Operand& gradients, const Operand& bias,
                         const Operand& ids, const Operand& logsumexp, const TokenSums& to, int begin, float* partial) {
    if (logits.rows == 0) return;
    const int parts = token_loss_parts(logits, gradients, bias);
    by_real(logits.dtype, [&]<class T>(T) {
        constexpr int kRun = 16 / sizeof(T);
        if (parts > 0) {
            const int threads = rows_threads(logits.cols);
            const auto kernel =
                threads <= kFewThreads ? token_rows_kernel<T, kRun, kFewThreads> : token_rows_kernel<T, kRun, kMostThreads>;
            launch(kernel, dim3(parts, 1, logits.k), dim3(threads), 0, stream, logits, gradients, bias, ids, logsumexp, to, begin,
                   logits.rows, rows_of_block(logits), partial);
            return;
        }
        const bool whole = has_whole_runs(logits, gradients, bias);
        const auto kernel = whole ? token_loss_kernel<T, kRun> : token_loss_kernel<T, 1>;
        launch(kernel, dim3(logits.rows, 1, logits.k), threads_for(to.shape.vocabulary), 0, stream, logits, gradients, bias, ids,
               logsumexp, to, begin);
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
    const TokenSums sums{static_cast<Found*>(found), lengths,     b[at::state], b[at::tally], shape, p,
                         b.accumulates(at::tally),   b[at::total]};
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
