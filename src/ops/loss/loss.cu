// Losses: one block per member, for many rows of cross_entropy several; sums in a fixed order.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/loss/loss.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// Largest logit of a row with its index (the lowest on ties), by the row's kLanes threads.
template <int kLanes, class T>
__device__ void find_largest(const T* logits, int classes, int lane, float& most, int& best) {
    most = -INFINITY;
    best = classes;
    for (int c = lane; c < classes; c += kLanes)
        if (const float v = load(logits + c); v > most || best == classes) {
            most = v;
            best = c;
        }
    for (int d = kLanes / 2; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, d);
        const int at = __shfl_xor_sync(0xffffffffu, best, d);
        if (other > most || (other == most && at < best)) {
            most = other;
            best = at;
        }
    }
}

/// What the blocks of one member leave to the last of them.
struct EntropyPart {
    double loss;
    std::uint32_t correct, bad;
};
constexpr int kEntropyThreads = 512;

/// grid (blocks, members). Of several blocks the last to finish adds up their parts, [K, blocks]; `finished` [K] counts them and
/// is zero again afterwards.
template <int kLanes, class T>
__global__ void __launch_bounds__(kEntropyThreads)
    cross_entropy_kernel(Mat<const T> logits, Mat<const std::int32_t> labels, States state, Mat<T> dlogits,
                         Mat<const float> weights, Mat<std::int32_t> predicted, int rows, int classes, float scale,
                         EntropyPart* parts, unsigned* finished) {
    __shared__ double sums[32];
    __shared__ std::uint32_t counts[32];
    begin_kernel();
    const int k = blockIdx.y, lane = threadIdx.x % kLanes, step = gridDim.x * (blockDim.x / kLanes);
    scale *= state[k].loss_scale;
    double loss = 0;
    std::uint32_t correct = 0;
    bool bad = false;
    for (int r0 = blockIdx.x * (blockDim.x / kLanes); r0 < rows;
         r0 += step) {  // the whole warp takes part in the shuffles, rows or not
        const int r = min(r0 + static_cast<int>(threadIdx.x) / kLanes, rows - 1);
        const bool real = r0 + static_cast<int>(threadIdx.x) / kLanes < rows;
        const T* l = logits.row(k, 0, r);
        const std::int32_t label = *labels.row(k, 0, r);
        float most;
        int best;
        find_largest<kLanes>(l, classes, lane, most, best);
        float total = 0;
        for (int c = lane; c < classes; c += kLanes) total += expf(load(l + c) - most);
        for (int d = kLanes / 2; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
        const bool known = label >= 0 && label < classes;
        if (!real) continue;
        const float weight = weights && known ? weights.row(k, 0, 0)[label] : 1.0f;
        if (lane == 0) {
            if (predicted) *predicted.row(k, 0, r) = best;
            const float row_loss = known ? weight * (logf(total) - (load(l + label) - most)) : 0;
            bad = bad || !known || !isfinite(row_loss);
            loss += row_loss;
            correct += known && best == label;
        }
        if (!dlogits) continue;
        for (int c = lane; c < classes; c += kLanes)
            store(dlogits.row(k, 0, r) + c,
                  known ? (expf(load(l + c) - most) / total - (c == label ? 1.0f : 0.0f)) * (scale * weight) : 0.0f);
    }
    loss = block_sum(loss, sums);
    correct = block_sum(correct, counts);
    int any_bad = __syncthreads_or(bad);
    if (gridDim.x > 1) {
        bool last = false;
        EntropyPart* mine = parts + static_cast<std::int64_t>(k) * gridDim.x;
        if (threadIdx.x == 0) {
            mine[blockIdx.x] = {loss, correct, any_bad != 0};
            __threadfence();
            last = atomicInc(finished + k, gridDim.x - 1) == gridDim.x - 1;
        }
        if (!__syncthreads_or(last)) return;
        __threadfence();
        loss = 0, correct = 0, bad = false;
        for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
            loss += __ldcg(&mine[block].loss);
            correct += __ldcg(&mine[block].correct);
            bad = bad || __ldcg(&mine[block].bad) != 0;
        }
        loss = block_sum(loss, sums);
        correct = block_sum(correct, counts);
        any_bad = __syncthreads_or(bad);
    }
    if (threadIdx.x != 0) return;
    MemberState& m = state[k];
    m.loss += loss;
    m.rows += rows;
    m.correct += correct;
    if (any_bad) m.nonfinite = 1;
}

template <class T>
__global__ void mse_kernel(Mat<const T> prediction, Mat<const T> target, States state, Mat<T> dprediction, int rows, int cols,
                           LossParams params) {
    __shared__ double sums[32];
    begin_kernel();
    const int k = blockIdx.x;
    const float scale = static_cast<float>(params.scale / fmax(1.0 * rows * cols, 1.0)) * state[k].loss_scale;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < std::int64_t{rows} * cols; i += blockDim.x) {
        const std::int64_t r = i / cols, c = i % cols;
        const float d = load(prediction.row(k, 0, r) + c) - load(target.row(k, 0, r) + c);
        sum += static_cast<double>(d) * d;
        if (dprediction) store(dprediction.row(k, 0, r) + c, 2 * d * scale);
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x != 0) return;
    MemberState& m = state[k];
    if (params.as_loss) {
        m.loss += cols > 0 ? sum / cols : 0;
        m.rows += rows;
    } else {
        m.penalty += rows > 0 && cols > 0 ? params.scale * (sum / cols) / rows : 0;
    }
    if (!isfinite(sum)) m.nonfinite = 1;
}

__global__ void loss_total_kernel(Mat<const std::int32_t> values, Mat<const float> weights, Mat<float> total, int rows,
                                  int classes, int most) {
    __shared__ double sums[32];
    begin_kernel();
    const int k = blockIdx.x;
    double sum = 0;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        const std::int32_t value = *values.row(k, 0, r);
        if (!weights)
            sum += min(max(value, 0), most);
        else if (value >= 0 && value < classes)
            sum += weights.row(k, 0, 0)[value];
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x != 0) return;
    total.row(k, 0, 0)[0] = static_cast<float>(sum);
    total.row(k, 0, 0)[1] = static_cast<float>(rows);
}

}  // namespace

KernelResult make_cross_entropy(Context& c, const Bound& b) {
    using namespace cross_entropy;
    const Operand &l = b[logits], &y = b[labels], &s = b[state], &d = b[dlogits];
    return by_real(l.dtype, [&]<class T>(T) -> KernelResult {
        const auto scale = static_cast<float>(b.params<LossParams>().scale / std::max(l.rows, 1));
        const int lanes = l.rows <= 64 || l.cols > 64 ? 16 : 4;
        const auto kernel = lanes == 16 ? cross_entropy_kernel<16, T> : cross_entropy_kernel<4, T>;
        // A second trip of one block takes no longer than adding up parts.
        const int at_once = kEntropyThreads / lanes;
        const unsigned blocks = l.rows <= 2 * at_once ? 1 : blocks_for(l.rows, at_once);
        const std::size_t members = static_cast<std::size_t>(l.k), bytes = members * blocks * sizeof(EntropyPart);
        MILLRACE_LET(parts, zero_table(c, bytes + members * sizeof(unsigned)));
        auto* finished = reinterpret_cast<unsigned*>(static_cast<std::byte*>(parts) + bytes);
        return make_launch(c, kernel, dim3(blocks, l.k), dim3(kEntropyThreads), 0, l, y, s, d, b[weights], b[predicted], l.rows,
                           l.cols, scale, parts, finished);
    });
}

KernelResult make_mse(Context& c, const Bound& b) {
    using namespace mse;
    const Operand &q = b[prediction], &t = b[target], &s = b[state], &d = b[dprediction];
    return by_real(q.dtype, [&]<class T>(T) {
        return make_launch(c, mse_kernel<T>, dim3(q.k), dim3(512), 0, q, t, s, d, q.rows, q.cols, b.params<LossParams>());
    });
}

KernelResult make_loss_total(Context& c, const Bound& b) {
    using namespace loss_total;
    const Operand& in = b[values];
    return make_launch(c, loss_total_kernel, dim3(in.k), dim3(512), 0, in, b[weights], b[total], in.rows, b[weights].cols,
                       b.params<LossTotalParams>().most);
}

}  // namespace millrace::ops::cuda
