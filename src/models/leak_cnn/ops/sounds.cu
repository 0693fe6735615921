// Mel bands: a block per window. Losses with weights of the member: one block per member, a thread per row, sums in a fixed
// order.
#include "models/leak_cnn/ops/sounds.h"

#include <cuda_fp16.h>

#include "data/sound/mel.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

using Tables = data::MelTables<float>;
constexpr int kHalf = Tables::kHalf, kBins = data::kMelBins, kMelThreads = kHalf / 2;  // one butterfly of a stage each

__device__ float2 times(float2 a, float2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

/// A block per window; the steps are those of mel_bands_of.
template <class T>
__global__ void __launch_bounds__(kMelThreads) mel_kernel(const Tables* tables, Mat<const float> x, Mat<T> y) {
    begin_kernel();
    const Tables& t = *tables;
    __shared__ float2 z[kHalf];
    __shared__ float magnitudes[kBins];
    const int thread = threadIdx.x;
    const float* samples = x.row(blockIdx.y, 0, blockIdx.x);
    for (int i = thread; i < kHalf; i += kMelThreads) {
        const int even = 2 * t.reversed[i];
        z[i] = {samples[even] * t.window[even], samples[even + 1] * t.window[even + 1]};
    }
    for (int half = 1; half < kHalf; half *= 2) {
        __syncthreads();
        const int k = thread % half, at = thread / half * 2 * half + k, turn = k * (kHalf / half);
        const float2 low = z[at], high = times({t.cosine[turn], t.sine[turn]}, z[at + half]);
        z[at] = {low.x + high.x, low.y + high.y};
        z[at + half] = {low.x - high.x, low.y - high.y};
    }
    __syncthreads();
    for (int k = thread; k < kBins; k += kMelThreads) {
        const float2 here = z[k % kHalf], there = z[(kHalf - k) % kHalf],
                     turn = k == kHalf ? float2{-1, 0} : float2{t.cosine[k], t.sine[k]};
        const float2 even{0.5f * (here.x + there.x), 0.5f * (here.y - there.y)};
        const float2 odd = times(turn, {0.5f * (here.y + there.y), 0.5f * (there.x - here.x)});
        const float real = even.x + odd.x, imaginary = even.y + odd.y;
        magnitudes[k] = sqrtf(real * real + imaginary * imaginary);
    }
    __syncthreads();
    if (thread >= static_cast<int>(data::kMelBands)) return;
    float sum = 0;
    for (int i = t.begin[thread]; i < t.begin[thread + 1]; ++i)
        sum += t.weights[i] * magnitudes[t.first[thread] + i - t.begin[thread]];
    const float decibels = 20 * log10f(fmaxf(sum, static_cast<float>(data::kLeastMagnitude)));
    if constexpr (std::is_same_v<T, __half>)
        y.row(blockIdx.y, 0, blockIdx.x)[thread] = __float2half_rn(decibels);
    else
        store(y.row(blockIdx.y, 0, blockIdx.x) + thread, decibels);
}

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

KernelResult make_mel_bands(Context& c, const Bound& b) {
    const Operand &x = b[mel_bands::x], &y = b[mel_bands::y];
    MILLRACE_LET(table, upload_table(c, &data::mel_tables<float>(), sizeof(Tables)));
    const auto make = [&]<class T>(T) {
        return make_launch(c, mel_kernel<T>, dim3(y.rows, y.k), dim3(kMelThreads), 0, table, x, y);
    };
    return y.dtype == DType::f16 ? make(__half{}) : make(float{});
}

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
