// Losses with weights of the member: one block per member, a thread per row, sums in a fixed order.

#include "models/leak_cnn/ops/weighted.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

template <class T>
struct WeightedArgs {
    Mat<const T> logits;
    Mat<const std::int32_t> labels;
    Mat<const float> weights, gamma;
    States state;
    Mat<T> dlogits;
    int rows, classes;
    WeightedLossParams p;
    Mat<const float> total;
};

/// What a row adds to the sum, and whether its largest logit is its label.
template <class T>
__device__ float weighted_row(const WeightedArgs<T>& a, int k, int r, std::int32_t label, float focus, float factor,
                              bool& correct) {
    const T* l = a.logits.row(k, 0, r);
    float most = load(l);
    int best = 0;
    for (int c = 1; c < a.classes; ++c)
        if (const float v = load(l + c); v > most) {
            most = v;
            best = c;
        }
    correct = best == label;
    float total = 0;
    for (int c = 0; c < a.classes; ++c) total += expf(load(l + c) - most);
    const float loss = logf(total) - (load(l + label) - most), weight = a.weights.row(k, 0, 0)[label];
    const float p = expf(-loss), q = fmaxf(1 - p, 1e-8f), damping = focus == 0 ? 1 : powf(q, focus);
    if (a.dlogits) {
        const float slope = weight * (damping + (focus == 0 ? 0 : focus * damping / q * p * loss)) * factor;
        for (int c = 0; c < a.classes; ++c)
            store(a.dlogits.row(k, 0, r) + c, (expf(load(l + c) - most) / total - (c == label ? 1.0f : 0.0f)) * slope);
    }
    return weight * damping * loss;
}

template <class T>
__global__ void weighted_cross_entropy_kernel(const __grid_constant__ WeightedArgs<T> a) {
    __shared__ double sums[32];
    __shared__ std::uint32_t counts[32];
    begin_kernel();
    const int k = blockIdx.x;
    double divisor = a.rows, rows = a.rows;
    if (a.total) {
        divisor = a.total.row(k, 0, 0)[0];
        rows = a.total.row(k, 0, 0)[1];
    } else if (!a.p.by_rows) {
        double mine = 0;
        for (int r = threadIdx.x; r < a.rows; r += blockDim.x) {
            const std::int32_t label = *a.labels.row(k, 0, r);
            if (label >= 0 && label < a.classes) mine += a.weights.row(k, 0, 0)[label];
        }
        divisor = block_sum(mine, sums);
    }
    const double share = divisor > 0 ? 1 / divisor : 0;
    const float factor = static_cast<float>(a.p.scale * share) * a.state[k].loss_scale;
    const float focus = *a.gamma.row(k, 0, 0);
    double loss = 0;
    std::uint32_t right = 0;
    bool bad = false;
    for (int r = threadIdx.x; r < a.rows; r += blockDim.x) {
        const std::int32_t label = *a.labels.row(k, 0, r);
        if (label < 0 || label >= a.classes) {
            bad = true;
            for (int c = 0; a.dlogits && c < a.classes; ++c) store(a.dlogits.row(k, 0, r) + c, 0.0f);
            continue;
        }
        bool correct;
        const float term = weighted_row(a, k, r, label, focus, factor, correct);
        loss += term;
        right += correct;
        bad = bad || !isfinite(term);
    }
    loss = block_sum(loss, sums);
    right = block_sum(right, counts);
    const int any_bad = __syncthreads_or(bad);
    if (threadIdx.x != 0) return;
    MemberState& m = a.state[k];
    m.loss += loss * share * rows;
    m.rows += a.rows;
    m.correct += right;
    if (any_bad) m.nonfinite = 1;
}

template <class T>
__global__ void binary_cross_entropy_kernel(Mat<const T> logit, Mat<const std::int32_t> labels, Mat<const float> weight,
                                            States state, Mat<T> dlogit, int rows, BinaryLossParams p) {
    __shared__ double sums[32];
    begin_kernel();
    const int k = blockIdx.x;
    const double share = p.scale * *weight.row(k, 0, 0) / max(rows, 1);
    const float slope = static_cast<float>(share) * state[k].loss_scale;
    double sum = 0;
    for (int r = threadIdx.x; r < rows; r += blockDim.x) {
        const float l = load(logit.row(k, 0, r)), wanted = *labels.row(k, 0, r) == p.positive ? 1 : 0, e = expf(-fabsf(l));
        sum += fmaxf(l, 0) + log1pf(e) - wanted * l;
        if (dlogit) store(dlogit.row(k, 0, r), ((l >= 0 ? 1 / (1 + e) : e / (1 + e)) - wanted) * slope);
    }
    sum = block_sum(sum, sums);
    if (threadIdx.x != 0) return;
    MemberState& m = state[k];
    m.penalty += sum * share;
    if (!isfinite(sum)) m.nonfinite = 1;
}

/// Enough threads for the rows, a warp at least.
dim3 threads_for(int rows) { return dim3(std::min(1024, (std::max(rows, 1) + 31) / 32 * 32)); }

}  // namespace

KernelResult make_weighted_cross_entropy(Context& c, const Bound& b) {
    using namespace weighted_cross_entropy;
    const Operand& in = b[logits];
    return by_real(in.dtype, [&]<class T>(T) {
        const WeightedArgs<T> a{
            b[logits], b[labels], b[weights], b[gamma], b[state], b[dlogits], in.rows, in.cols, b.params<WeightedLossParams>(),
            b[total]};
        return make_launch(c, weighted_cross_entropy_kernel<T>, dim3(in.k), threads_for(in.rows), 0, a);
    });
}

KernelResult make_binary_cross_entropy(Context& c, const Bound& b) {
    using namespace binary_cross_entropy;
    const Operand& in = b[logit];
    return by_real(in.dtype, [&]<class T>(T) {
        return make_launch(c, binary_cross_entropy_kernel<T>, dim3(in.k), threads_for(in.rows), 0, in, b[labels], b[weight],
                           b[state], b[dlogit], in.rows, b.params<BinaryLossParams>());
    });
}

}  // namespace millrace::ops::cuda
