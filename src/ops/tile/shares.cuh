#pragma once
// Several blocks share a tile's summed index: each leaves its sums, and the last one adds them in a fixed order.

#include <cuda_runtime.h>

#include <cstdint>

namespace millrace::ops::cuda::tile {

/// What the blocks of a tile leave each other.
struct Shares {
    float4* sums;           ///< [count][quads of a thread][threads]
    std::int32_t* arrived;  ///< blocks that are done; zero between launches
    int count;
};

/// Leaves share `own` of a tile: quad(0) to quad(kQuads - 1), four floats each, of threads 0 to kThreads - 1, which meet in
/// `await`. True in the last block to come, whose quads then are the sums of all shares, added in their order.
template <int kQuads, int kThreads, class Quad, class Await>
__device__ __forceinline__ bool join_shares(const Shares& shares, int own, int thread, volatile int* before, Quad quad,
                                            Await await) {
    constexpr int kShare = kQuads * kThreads;
    float4* first = shares.sums + thread;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        const float* v = quad(i);
        __stcg(first + own * kShare + i * kThreads, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    await();
    if (thread == 0) *before = atomicAdd(shares.arrived, 1);
    await();
    if (*before != shares.count - 1) return false;
    __threadfence();
    if (thread == 0) *shares.arrived = 0;
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) quad(i / 4)[i % 4] = 0;
#pragma unroll 1
    for (int s = 0; s < shares.count; ++s, first += kShare)
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
            const float4 more = __ldcg(first + i * kThreads);
            float* v = quad(i);
            v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
        }
    return true;
}

}  // namespace millrace::ops::cuda::tile
