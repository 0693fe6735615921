// Blocks own entries of the vocabulary, rows of the batch stream: the logits of a tile are computed again and become
// probabilities, less one where an entry is the row's target, whose products with the rows are dweight. Where several blocks
// share the rows for the same entries, a second kernel adds their parts in order.

#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

/// Products become probabilities; `of` has the rows of the tile, bias the entries of this thread, both in units of log 2.
template <int kWidth>
__device__ inline void to_probabilities(typename Layout<kWidth>::Products& products, const RowInfo* of,
                                        const float (&bias)[Layout<kWidth>::kTiles][2]) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
        const float4 both = *reinterpret_cast<const float4*>(of + column_of(n, 0));
#pragma unroll
        for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float logsumexp = i % 2 == 0 ? both.x : both.z;
                products[m][n][i] = exp2_fast(fmaf(products[m][n][i], kLog2E, bias[m][i / 2] - logsumexp));
            }
    }
}

/// Less one where an entry of the warp, which begin at `begin`, is the row's target.
template <int kWidth>
__device__ inline void subtract_targets(typename Layout<kWidth>::Products& weights, const RowInfo* of, int begin) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int target = of[column_of(n, i)].target - begin;
#pragma unroll
            for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
                if (row_of(m, i) == target) weights[m][n][i] -= 1;
        }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads, 2) weight_gradient_kernel(const __grid_constant__ Args a) {
    using Shape = Layout<kWidth>;
    constexpr int kTiles = Shape::kTiles;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16 *own = reinterpret_cast<bf16*>(memory), *tiles = own + Shape::kOwned * Shape::kStride;
    auto* infos = reinterpret_cast<RowInfo*>(tiles + 2 * kTile * Shape::kStride);
    const int lane = threadIdx.x % 32, part = blockIdx.y, k = blockIdx.z;
    const int warp_row = threadIdx.x / 32 * 16 * kTiles, entry = blockIdx.x * Shape::kOwned + warp_row;
    const int all = a.padded_rows() / kTile, first = all * part / a.weight_parts, last = all * (part + 1) / a.weight_parts;
    begin_kernel();
    const auto fetch = [&](int tile) {
        const int buffer = tile % 2, pair = threadIdx.x * 2;
        stage<kWidth, kTile>(a.x, k, tile * kTile, a.rows, a.cols, tiles + buffer * kTile * Shape::kStride);
        if (pair < kTile) copy16(shared_address(infos + buffer * kTile + pair), a.info_of(k) + tile * kTile + pair, true);
        commit_copies();
    };
    stage<kWidth, Shape::kOwned>(a.weight, k, blockIdx.x * Shape::kOwned, a.shape.vocabulary, a.cols, own);
    fetch(first);
    float bias[kTiles][2], bias_sum[kTiles][2] = {};
    typename Shape::Sums sums;
    clear(sums);
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int v = entry + row_of(m, 2 * half);
            bias[m][half] = a.bias && v < a.shape.vocabulary ? a.bias.row(k, 0, 0)[v] * kLog2E : 0;
        }
    for (int tile = first; tile < last; ++tile) {
        await_copies<0>();
        __syncthreads();
        if (tile + 1 < last) fetch(tile + 1);
        const bf16* rows = tiles + tile % 2 * kTile * Shape::kStride;
        const RowInfo* of = infos + tile % 2 * kTile;
        if (!__any_sync(0xffffffffu, of[lane].target >= 0 || of[lane + 32].target >= 0)) continue;  // rows that predict nothing
        typename Shape::Products weights;
        multiply_across<kWidth>(weights, own + warp_row * Shape::kStride, rows);
        to_probabilities<kWidth>(weights, of, bias);
        const auto owned = [&](int number) {
            const int target = of[number].target;
            return target >= entry && target < entry + 16 * kTiles;
        };
        if (__any_sync(0xffffffffu, owned(lane) || owned(lane + 32))) subtract_targets<kWidth>(weights, of, entry);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) bias_sum[m][i / 2] += weights[m][n][i];
        multiply_along<kWidth>(sums, weights, rows);
    }
    const int left = a.shape.vocabulary - entry;
    const float share = a.shares[k];
    const float squares = put_sums<kWidth>(sums, a.weight_target(part, k, entry, share), left, a.cols);
    if (a.direct) put_squares(a, k, static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32), squares);
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(bias_sum[m][half]);
            if (const int row = row_of(m, 2 * half); lane % 4 == 0 && row < left) a.put_bias(part, k, entry + row, sum, share);
        }
}

constexpr int kAddThreads = 256;

/// Adds the parts, four columns per thread; `whole`: rows of dweight start on 16 bytes.
__global__ void add_parts_kernel(const __grid_constant__ Args a, bool whole) {
    __shared__ float shared[32];
    begin_kernel();
    const int k = blockIdx.z, vocabulary = a.shape.vocabulary, fours = a.cols / 4;
    const float share = a.shares[k];
    const int first = blockIdx.x * kAddThreads + threadIdx.x, step = gridDim.x * kAddThreads;
    if (a.dbias)
        for (int v = first; v < vocabulary; v += step) {
            float sum = 0;
            for (int p = 0; p < a.weight_parts; ++p) sum += a.bias_sums()[(std::int64_t{p} * a.members + k) * vocabulary + v];
            put(a.dbias.row(k, 0, 0) + v, sum * share, a.add_bias);
        }
    if (!a.dweight) return;
    float squares = 0;
    for (std::int64_t i = first; i < std::int64_t{vocabulary} * fours; i += step) {
        const auto row = static_cast<int>(i / fours), column = 4 * static_cast<int>(i - std::int64_t{row} * fours);
        float4 sum = make_float4(0, 0, 0, 0);
        const float* from = a.sums + (std::int64_t{k} * vocabulary + row) * a.cols + column;
        for (int p = 0; p < a.weight_parts; ++p, from += std::int64_t{a.members} * vocabulary * a.cols) {
            const float4 part = *reinterpret_cast<const float4*>(from);
            sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
        }
        sum = make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share);
        float* to = a.dweight.row(k, 0, row) + column;
        if (whole) {
            const float4 before = a.add_weight ? *reinterpret_cast<const float4*>(to) : make_float4(0, 0, 0, 0);
            sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
            *reinterpret_cast<float4*>(to) = sum;
            squares += sum.x * sum.x + sum.y * sum.y + (sum.z * sum.z + sum.w * sum.w);
        } else {
            put(to, sum.x, a.add_weight);
            put(to + 1, sum.y, a.add_weight);
            put(to + 2, sum.z, a.add_weight);
            put(to + 3, sum.w, a.add_weight);
        }
    }
    if (a.squares == nullptr) return;
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) a.squares[std::int64_t{k} * a.square_parts + blockIdx.x] = squares;
}

dim3 add_grid(const Args& a) {
    return dim3(std::min(blocks_for(std::int64_t{a.shape.vocabulary} * (a.cols / 4), kAddThreads), 1024u), 1,
                static_cast<unsigned>(a.members));
}

KernelResult make_parts(Context& c, const Args& a, const warpgroups::Maps& maps) {
    if (a.warpgroups) return make_warpgroup_weight_gradient(c, a, maps);
    return with_width(a.cols, [&]<int kWidth>() -> KernelResult {
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(weight_gradient_kernel<kWidth>)));
        const dim3 grid(blocks_for(a.shape.vocabulary, Layout<kWidth>::kOwned), static_cast<unsigned>(a.weight_parts),
                        static_cast<unsigned>(a.members));
        return make_launch(c, weight_gradient_kernel<kWidth>, grid, dim3(kThreads), Layout<kWidth>::kBytes, a);
    });
}

}  // namespace

int square_parts(const Args& a) {
    if (!a.direct) return static_cast<int>(add_grid(a).x);
    if (a.warpgroups) return 8 * static_cast<int>(blocks_for(a.shape.vocabulary, 128));
    return with_width(
        a.cols, [&]<int kWidth>() { return kWarps * static_cast<int>(blocks_for(a.shape.vocabulary, Layout<kWidth>::kOwned)); });
}

KernelResult make_weight_gradient(Context& c, const Args& a, const warpgroups::Maps& maps, bool aligned) {
    MILLRACE_LET(parts, make_parts(c, a, maps));
    if (a.direct) return KernelResult(std::move(parts));
    return make_kernel([stream = c.stream, parts = std::shared_ptr<Kernel>(std::move(parts)), a, aligned, grid = add_grid(a)] {
        parts->run();
        launch(add_parts_kernel, grid, dim3(kAddThreads), 0, stream, a, aligned);
    });
}

}  // namespace millrace::ops::cuda::vocabulary
