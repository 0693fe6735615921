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
                                  Mat<float> losses, const __grid_constant__ TokenSums a, int begin) {
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
        if (threadIdx.x == 0 && losses) *losses.row(k, 0, row) = 0;
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
        if (losses) *losses.row(k, 0, row) = loss;
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

/// Of the logits of a row that a block holds in registers a thread's: runs of V, `step` apart.
constexpr int kHeld = 32;
template <class T, int V>
struct HeldLogits {
    static constexpr int kRuns = kHeld / V;
    int first, step, words;
    float v[kRuns][V];

    __device__ explicit HeldLogits(int vocabulary)
        : first(V * static_cast<int>(threadIdx.x)), step(V * static_cast<int>(blockDim.x)), words(vocabulary) {}
    template <class F>
    __device__ void each(F f) {
#pragma unroll
        for (int j = 0; j < kRuns; ++j)
            if (const int c = first + j * step; c < words) f(c, v[j], j);
    }
    __device__ void load(const T* row) {
        each([&](int c, float(&run)[V], int) { load_run<V>(row + c, run); });
    }
    /// Adds biases and returns the largest; a NaN is none.
    __device__ float largest(const float* bias) {
        float most = -INFINITY;
        each([&](int c, float(&run)[V], int) {
            float more[V] = {};
            if (bias != nullptr) load_run<V>(bias + c, more);
#pragma unroll
            for (int i = 0; i < V; ++i) most = fmaxf(most, run[i] += more[i]);
        });
        return most;
    }
    /// The first one that is `value`.
    __device__ int find(float value) {
        int lowest = INT_MAX;
        each([&](int c, float(&run)[V], int) {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (run[i] == value) lowest = min(lowest, c + i);
        });
        return lowest;
    }
    /// They become exponentials over the reference, whose sum is returned.
    __device__ float exponentiate(float reference) {
        float total = 0;
        each([&](int, float(&run)[V], int) {
#pragma unroll
            for (int i = 0; i < V; ++i) total += run[i] = exponential<T>(run[i] - reference);
        });
        return total;
    }
    /// And these gradients, which are added to `sums`.
    __device__ void put_gradients(T* row, float factor, float share, int id, float (&sums)[kRuns][V]) {
        each([&](int c, float(&run)[V], int j) {
#pragma unroll
            for (int i = 0; i < V; ++i) {
                run[i] = run[i] * factor - (c + i == id ? share : 0.0f);
                sums[j][i] += run[i];
            }
            store_run<V>(row + c, run);
        });
    }
};

/// join(a, b) over the block's threads, warps in order; `shared` has 32 places, which are free again behind the next barrier.
template <class Join>
__device__ float over_block(float value, float* shared, Join join) {
    for (int d = 16; d > 0; d /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, d));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int w = 1; w < static_cast<int>(blockDim.x) / 32; ++w) value = join(value, shared[w]);
    return value;
}

/// The same for few words: a row is read once and has one exponential a logit. A block takes `rows_each` of `rows` rows. partial,
/// [K][blocks][vocabulary], gets the sums of the gradients over them; null: these are not wanted.
constexpr int kFewThreads = 320, kMostThreads = 512;

template <class T, int V, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == kFewThreads ? 2 : 1)
    token_rows_kernel(Mat<const T> logits, Mat<T> gradients, Mat<const float> bias, Mat<const std::int32_t> ids,
                      Mat<float> losses, const __grid_constant__ TokenSums a, int begin, int rows, int rows_each,
                      float* partial) {
    __shared__ int counts[32], best;
    __shared__ float largest[32], totals[32];
    begin_kernel();
    const int k = blockIdx.z, words = a.shape.vocabulary, last = min(rows, static_cast<int>(blockIdx.x + 1) * rows_each);
    const float* shift = bias ? bias.row(k, 0, 0) : nullptr;
    const float share = gradients ? static_cast<float>(a.params.scale / block_divisor(a, k, counts)) * a.state[k].loss_scale : 0;
    if (threadIdx.x == 0) best = INT_MAX;
    HeldLogits<T, V> held(words);
    float sums[held.kRuns][V] = {};
    for (int r = static_cast<int>(blockIdx.x) * rows_each; r < last; ++r) {
        const int row = begin + r, sequence = row / a.shape.positions, t = row % a.shape.positions - a.params.first;
        const T* l = logits.row(k, 0, r);
        T* gradient = gradients ? gradients.row(k, 0, r) : nullptr;
        Found& out = a.found[std::int64_t{k} * a.shape.sequences * a.shape.positions + row];
        held.load(l);
        const bool asked = t >= 0 && t < tokens_of(a.lengths, k, sequence, a.shape.tokens);
        const std::int32_t id = asked ? ids.row(k, 0, sequence)[t] : 0;
        if (!asked || id < 0 || id >= words) {  // the same for the whole block
            constexpr float kNothing[V] = {};
            for (int c = held.first; gradient != nullptr && c < words; c += held.step) store_run<V>(gradient + c, kNothing);
            if (threadIdx.x == 0) out = {0, 0, asked};
            if (threadIdx.x == 0 && losses) *losses.row(k, 0, row) = 0;
            continue;
        }
        const float wanted = threadIdx.x == 0 ? load(l + id) + (shift != nullptr ? shift[id] : 0) : 0;
        const float own = held.largest(shift), most = over_block(own, largest, [](float x, float y) { return fmaxf(x, y); });
        if (own == most) atomicMin(&best, held.find(most));
        const float total =
            over_block(held.exponentiate(most == -INFINITY ? 0 : most), totals, [](float x, float y) { return x + y; });
        if (threadIdx.x == 0) {
            const float loss = logf(total) - (wanted - most);
            out = {loss, best == id, !isfinite(loss)};
            best = INT_MAX;
            if (losses) *losses.row(k, 0, row) = loss;
        }
        if (gradient != nullptr) held.put_gradients(gradient, share / total, share, id, sums);
    }
    if (partial == nullptr) return;
    float* to = partial + (static_cast<std::int64_t>(k) * gridDim.x + blockIdx.x) * words;
    held.each([&](int c, float(&)[V], int j) { store_run<V>(to + c, sums[j]); });
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
                         const Operand& ids, const Operand& losses, const TokenSums& to, int begin, float* partial) {
    if (logits.rows == 0) return;
    const int parts = token_loss_parts(logits, gradients, bias);
    by_real(logits.dtype, [&]<class T>(T) {
        constexpr int kRun = 16 / sizeof(T);
        if (parts > 0) {
            const int threads = rows_threads(logits.cols);
            const auto kernel =
                threads <= kFewThreads ? token_rows_kernel<T, kRun, kFewThreads> : token_rows_kernel<T, kRun, kMostThreads>;
            launch(kernel, dim3(parts, 1, logits.k), dim3(threads), 0, stream, logits, gradients, bias, ids, losses, to, begin,
                   logits.rows, rows_of_block(logits), partial);
            return;
        }
        const bool whole = has_whole_runs(logits, gradients, bias);
        const auto kernel = whole ? token_loss_kernel<T, kRun> : token_loss_kernel<T, 1>;
        launch(kernel, dim3(logits.rows, 1, logits.k), threads_for(to.shape.vocabulary), 0, stream, logits, gradients, bias, ids,
               losses, to, begin);
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
