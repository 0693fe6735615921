// One block per member; sums in a fixed order.

#include "models/collective/ops/diversity.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr float kTiny = 1e-12f;

template <class T>
__device__ float norm_of(const T* v, int cols) {
    float sum = 0;
    for (int c = 0; c < cols; ++c) sum += load(v + c) * load(v + c);
    return sqrtf(sum);
}

/// One block per member; dynamic shared memory: G * G cosines and one double per warp.
template <class T>
__global__ void diversity_kernel(Mat<const T> o, States state, Mat<T> dout, int groups, int rows, int cols, DiversityParams p,
                                 bool accumulate) {
    extern __shared__ double cosines[];
    __shared__ double sums[32];
    begin_kernel();
    const int k = blockIdx.x;
    for (int i = 0; i < groups; ++i)
        for (int j = i + 1; j < groups; ++j) {
            double sum = 0;
            for (int r = threadIdx.x; r < rows; r += blockDim.x) {
                const T *a = o.row(k, i, r), *b = o.row(k, j, r);
                float dot = 0;
                for (int c = 0; c < cols; ++c) dot += load(a + c) * load(b + c);
                sum += dot / (fmaxf(norm_of(a, cols), kTiny) * fmaxf(norm_of(b, cols), kTiny));
            }
            sum = block_sum(sum, sums);
            if (threadIdx.x == 0) cosines[i * groups + j] = cosines[j * groups + i] = sum / rows / p.temperature;
        }
    __syncthreads();
    const double pairs = 0.5 * groups * (groups - 1);
    if (threadIdx.x == 0) {
        double total = 0;
        for (int i = 0; i < groups; ++i)
            for (int j = i + 1; j < groups; ++j) total += fabs(cosines[i * groups + j]);
        const double penalty = p.weight * total / pairs;
        state[k].penalty += p.scale * penalty;
        if (!isfinite(penalty)) state[k].nonfinite = 1;
    }
    if (!dout) return;
    const double factor = p.scale * p.weight / (pairs * p.temperature * rows) * state[k].loss_scale;
    for (int work = threadIdx.x; work < groups * rows; work += blockDim.x) {
        const int i = work / rows, r = work % rows;
        const T* a = o.row(k, i, r);
        const float na = norm_of(a, cols);
        for (int c = 0; c < cols; ++c) {
            double slope = 0;
            for (int j = 0; j < groups; ++j) {
                const double cosine = cosines[i * groups + j];
                if (j == i || cosine == 0) continue;
                const T* b = o.row(k, j, r);
                const float nb = fmaxf(norm_of(b, cols), kTiny);
                float dot = 0;
                for (int q = 0; q < cols; ++q) dot += load(a + q) * load(b + q);
                // Below the floor of the norm the divisor is a constant.
                const float along = na > kTiny ? dot * load(a + c) / (na * na) : 0;
                slope += (cosine > 0 ? 1.0 : -1.0) * (load(b + c) - along) / (fmaxf(na, kTiny) * nb);
            }
            T* at = dout.row(k, i, r) + c;
            const auto v = static_cast<float>(factor * slope);
            store(at, accumulate ? load(at) + v : v);
        }
    }
}

}  // namespace

KernelResult make_cosine_diversity(Context& c, const Bound& b) {
    using namespace cosine_diversity;
    const Operand &in = b[o], &s = b[state], &d = b[dout];
    const bool accumulate = b.accumulates(dout);
    const auto& p = b.params<DiversityParams>();
    if (in.g < 2 || in.rows == 0) {  // no pairs: the gradient is zero
        if (!d.present() || accumulate) return make_kernel([] {});
        return make_zeros(c, d);
    }
    const auto bytes = sizeof(double) * static_cast<std::size_t>(in.g) * static_cast<std::size_t>(in.g);
    if (bytes > 32 * 1024) return base::Error{"cosine diversity on cuda takes at most 64 groups"};
    return by_real(in.dtype, [&]<class T>(T) {
        return make_launch(c, diversity_kernel<T>, dim3(in.k), dim3(256), bytes, in, s, d, in.g, in.rows, in.cols, p, accumulate);
    });
}

}  // namespace millrace::ops::cuda
