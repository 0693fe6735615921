#include <cuda_fp16.h>

#include "data/sound/mel.h"
#include "models/leak_cnn/ops/mel.h"
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

}  // namespace

KernelResult make_mel_bands(Context& c, const Bound& b) {
    const Operand &x = b[mel_bands::x], &y = b[mel_bands::y];
    MILLRACE_LET(table, upload_table(c, &data::mel_tables<float>(), sizeof(Tables)));
    const auto make = [&]<class T>(T) {
        return make_launch(c, mel_kernel<T>, dim3(y.rows, y.k), dim3(kMelThreads), 0, table, x, y);
    };
    return y.dtype == DType::f16 ? make(__half{}) : make(float{});
}

}  // namespace millrace::ops::cuda
