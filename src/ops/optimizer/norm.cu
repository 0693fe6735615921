// The global norm of the gradients of all members.

#include "ops/optimizer/norm.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256;
constexpr int kNormPerMultiprocessor = 6;  ///< blocks of norm_slices_kernel

/// Sums kNormBlocks slices of a member's gradients, block b those from number b on in steps of gridDim.x. The slices and the
/// order of their sums follow from the width alone. All members go from their first elements to their last, as the update goes
/// back.
__global__ void __launch_bounds__(kThreads, kNormPerMultiprocessor)
    norm_slices_kernel(Mat<const float> grads, Mat<float> scratch, std::int64_t width, bool quads, Groups groups,
                       Segments segments) {
    __shared__ float sums[kNormBlocks][kThreads / 32];
    const int k = blockIdx.y, offset = (quads ? 4 : 1) * static_cast<int>(threadIdx.x);
    const std::int64_t slice = (width + 4 * kNormBlocks - 1) / (4 * kNormBlocks) * 4;
    Cursor cursor(segments, blockIdx.x * slice + offset);
    begin_kernel();
    const float* g = grads.row(k, 0, 0);
    const GroupState* group = groups.row(k);
    // Quads under way in a thread: with one, a slice of a large model takes a dozen rounds to L2.
    constexpr int kAtOnce = 4, kStep = 4 * kThreads;
    int count = 0;
    for (int number = blockIdx.x; number < kNormBlocks; number += gridDim.x, ++count) {
        const std::int64_t end = min((number + 1) * slice, width);
        std::int64_t i = number * slice + offset;
        float sum = 0;
        while (i < end) {
            cursor.move(segments, i);
            const bool counts = group[cursor.now.group].trainable != 0;
            const std::int64_t stop = min(end, std::int64_t{cursor.now.end});
            float with = sum;  // chosen afterwards: the gradients need not wait for the flag
            if (quads) {
                while (i < stop) {
                    const int left = static_cast<int>(stop - i);
                    float4 v[kAtOnce];
#pragma unroll
                    for (int q = 0; q < kAtOnce; ++q)
                        v[q] = q * kStep < left ? *reinterpret_cast<const float4*>(g + i + q * kStep) : make_float4(0, 0, 0, 0);
#pragma unroll
                    for (const float4& f : v) with += f.x * f.x + f.y * f.y + (f.z * f.z + f.w * f.w);
                    i += kStep * min(kAtOnce, (left + kStep - 1) / kStep);  // no further: the next segment goes on there
                }
            } else {
                for (; i < stop; i += kThreads) with += g[i] * g[i];
            }
            if (counts) sum = with;
        }
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (threadIdx.x % 32 == 0) sums[count][threadIdx.x / 32] = sum;
    }
    __syncthreads();  // once for all slices: between them no warp waits for another
    if (static_cast<int>(threadIdx.x) >= count) return;
    float total = 0;
    for (const float sum : sums[threadIdx.x]) total += sum;
    scratch.row(k, 0, 0)[blockIdx.x + threadIdx.x * gridDim.x] = total;
}

/// As many blocks of a member as run at once, each with as many slices.
unsigned norm_blocks(const Context& c, unsigned members) {
    const unsigned most = std::max(1u, static_cast<unsigned>(kNormPerMultiprocessor * c.multiprocessors) / members);
    return blocks_for(kNormBlocks, static_cast<int>(blocks_for(kNormBlocks, static_cast<int>(most))));
}

__global__ void norm_finish_kernel(Mat<const float> scratch, States state) {
    __shared__ float shared[32];
    begin_kernel();
    MemberState m = state[blockIdx.x];
    finish_norm(m, scratch.row(blockIdx.x, 0, 0), shared);
    if (threadIdx.x == 0) state[blockIdx.x] = m;
}

}  // namespace

KernelPtr make_norm_slices(const Context& c, const Bound& b) {
    const Operand& g = b[grad_norm::grads];
    const auto members = static_cast<unsigned>(g.k);
    return make_launch(c, norm_slices_kernel, dim3(norm_blocks(c, members), members), dim3(kThreads), 0, g, b[grad_norm::scratch],
                       std::int64_t{g.cols}, quads(g) && g.cols % 4 == 0, b[grad_norm::groups], b[grad_norm::segments]);
}

KernelResult make_grad_norm(Context& c, const Bound& b) {
    return make_kernel([stream = c.stream, slices = std::shared_ptr<Kernel>(make_norm_slices(c, b)),
                        scratch = b[grad_norm::scratch], s = b[grad_norm::state]] {
        slices->run();
        launch(norm_finish_kernel, dim3(s.k), dim3(kNormBlocks), 0, stream, scratch, s);
    });
}

}  // namespace millrace::ops::cuda
