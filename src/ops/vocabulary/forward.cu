// Joins what the blocks that share the vocabulary of the same rows left, in order.

#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

constexpr int kJoinWarps = 8;

/// One warp per row: joins the parts of the vocabulary, lane p those of part p.
template <class T>
__global__ void join_kernel(const __grid_constant__ Args a) {
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.z, row = blockIdx.x * kJoinWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    const float share = put_share(a, k, counts);
    if (row >= a.padded_rows()) return;
    const int target = row < a.rows ? target_of(a.ids, a.lengths, k, row, a.shape, a.params.first) : -1;
    if (target < 0) {
        if (lane == 0) put_row(a, k, row, target, 0, 1, 0, 0);
        for (int c = lane; row < a.rows && a.dx && !a.add_dx && c < a.cols; c += 32) a.dx.row(k, 0, row)[c] = 0;
        return;
    }
    const std::int64_t stride = std::int64_t{a.members} * a.rows, place = std::int64_t{k} * a.rows + row;
    const float4 part = lane < a.parts ? a.stats[lane * stride + place] : make_float4(-INFINITY, 0, 0, 0);
    float top = part.x;
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    const unsigned holders = __ballot_sync(0xffffffffu, part.x == top);
    const int best = __float_as_int(__shfl_sync(0xffffffffu, part.w, holders == 0 ? 0 : __ffs(holders) - 1));
    const float scale = lane < a.parts ? exp2_fast((part.x - top) * kLog2E) : 0;
    float sum = lane < a.parts ? scale * part.y : 0, logit = part.z;
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        logit += __shfl_xor_sync(0xffffffffu, logit, d);
    }
    if (lane == 0) put_row(a, k, row, target, top, sum, logit, best);
    if (!a.dx) return;
    const auto* weight = reinterpret_cast<const T*>(a.weight.row(k, 0, target));
    auto* dx = reinterpret_cast<T*>(a.dx.row(k, 0, row));
    for (int begin = 0; begin < a.cols; begin += 64) {
        const int c = begin + 2 * lane;
        float2 total = make_float2(0, 0);
        for (int p = 0; p < a.parts; ++p) {
            const float factor = __shfl_sync(0xffffffffu, scale, p);
            if (c >= a.cols) continue;
            const float2 value = *reinterpret_cast<const float2*>(a.sums + (p * stride + place) * a.cols + c);
            total.x = fmaf(factor, value.x, total.x);
            total.y = fmaf(factor, value.y, total.y);
        }
        if (c >= a.cols) continue;
        put(dx + c, (total.x / sum - load(weight + c)) * share, a.add_dx);
        put(dx + c + 1, (total.y / sum - load(weight + c + 1)) * share, a.add_dx);
    }
}

}  // namespace

KernelResult make_forward(Context& c, const Args& args, const warpgroups::Maps& maps, tensor::DType type) {
    MILLRACE_LET(parts, make_warpgroup_forward(c, args, maps, type));
    if (args.joined) return KernelResult(std::move(parts));
    const dim3 rows(blocks_for(args.padded_rows(), kJoinWarps), 1, static_cast<unsigned>(args.members));
    const auto join = by_half(type, []<class T>(T) { return join_kernel<T>; });
    return make_kernel([stream = c.stream, parts = std::shared_ptr<Kernel>(std::move(parts)), args, rows, join] {
        parts->run();
        launch(join, rows, dim3(32 * kJoinWarps), 0, stream, args);
    });
}

}  // namespace millrace::ops::cuda::vocabulary
