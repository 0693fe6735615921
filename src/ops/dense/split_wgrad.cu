// Weight gradients of several layers over very many rows in one launch: a cluster of blocks has one tile of one layer's
// dw = dz^T x, each block a share of the rows. They add their sums through shared memory, in the order of the shares. Products
// are those of whole warpgroups (compute capability 9.0a), whose summed index are the rows of both operands.

#include <vector>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/squares.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/tile_product.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warpgroup_product.cuh"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256, kTile = 128, kDepth = 64;
constexpr int kStages = 3;      ///< of kDepth rows each, one of them being read
constexpr int kFragments = 16;  ///< float4 of sums per thread
constexpr int kBlocks = 2;      ///< that a multiprocessor holds: one multiplies while the other waits for its products
/// An operand of a stage lies in shared memory as two halves of 64 columns, each as hopper.cuh says.
constexpr std::uint32_t kHalfBytes = kDepth * 128, kOperandBytes = 2 * kHalfBytes, kStageBytes = 2 * kOperandBytes;
constexpr std::size_t kBytes = 1024 + kStages * kStageBytes;
static_assert(kFragments * kThreads * sizeof(float4) <= kStages * kStageBytes);

struct SplitTile {
    const bf16 *dz, *x;  ///< first column of the tile, row 0
    float* dw;
    float* squares;  ///< [blocks of a cluster]: sums of squares of what each wrote; null: not computed
    std::int32_t ld_dz, ld_x, ld_dw;
    std::int32_t depth;            ///< rows of the batch
    std::int32_t outputs, inputs;  ///< valid rows and columns of the tile, multiples of 8
    std::int32_t accumulate;
};

/// Begins copies of kDepth rows of a tile: zeros from row `rows` and column `cols` on.
__device__ void stage(const bf16* from, int ld, int rows, int cols, std::uint32_t to) {
    constexpr int kPieces = kTile / 8, kStep = kThreads / kPieces;
    static_assert(kStep % 8 == 0);  // a thread's rows have one swizzle
    const int row = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
    const int limit = 8 * piece < cols ? rows : 0;
    to += piece / 8 * kHalfBytes + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
    from += 8 * piece;
#pragma unroll
    for (int i = 0; i < kDepth; i += kStep)
        copy16(to + 128 * i, from + std::int64_t{row + i < limit ? row + i : 0} * ld, row + i < limit);
}

/// What lies at `at` in the shared memory of block `rank` of the cluster.
__device__ float4 sums_of_rank(const float4* at, int rank) {
    float4 v = *at;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address_of_rank(at, rank))
                 : "memory");
#endif
    return v;
}

/// Returns the sum of the squares of what was written.
__device__ float put_pair(const SplitTile& tile, int row, int col, float first, float second) {
    if (row >= tile.outputs || col >= tile.inputs) return 0;
    auto* at = reinterpret_cast<float2*>(tile.dw + std::int64_t{row} * tile.ld_dw + col);
    if (tile.accumulate) {
        const float2 before = *at;
        first += before.x;
        second += before.y;
    }
    *at = make_float2(first, second);
    return first * first + second * second;
}
/// Four sums of a thread, number `fragment` of them.
__device__ float4 fragment_of(const float (&sums)[2][32], int fragment) {
    const float* v = sums[fragment / 8] + fragment % 8 * 4;
    return make_float4(v[0], v[1], v[2], v[3]);
}
__device__ float put_fragment(const SplitTile& tile, int fragment, const float4& v) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = 16 * warp + lane / 4, col = 8 * fragment + 2 * (lane % 4);
    return put_pair(tile, row, col, v.x, v.y) + put_pair(tile, row + 8, col, v.z, v.w);
}

/// Of the 64 outputs of warpgroup `group`.
__device__ void multiply_stage(float (&sums)[2][32], std::uint32_t dz, std::uint32_t x, int group) {
    const std::uint64_t left = hopper::summed_rows(dz + group * kHalfBytes, kHalfBytes),
                        right = hopper::summed_rows(x, kHalfBytes);
    hopper::products_begin();
#pragma unroll
    for (int s = 0; s < kDepth / 16; ++s)
        hopper::multiply_columns(sums[0], sums[1], left + s * (16 * 128 / 16), right + s * (16 * 128 / 16));
    hopper::products_commit();
}

/// gridDim.z: blocks of a cluster.
__global__ void __launch_bounds__(kThreads, kBlocks) split_wgrad_kernel(const SplitTile* tiles) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    unsigned char* memory = memory_of_block + (1024 - shared_address(memory_of_block) % 1024) % 1024;
    const std::uint32_t stages = shared_address(memory);
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be the same in a warp
    begin_kernel();
    const SplitTile tile = tiles[blockIdx.x];
    const int shares = static_cast<int>(gridDim.z), rank = static_cast<int>(blockIdx.z);
    const int share = (tile.depth + shares * kDepth - 1) / (shares * kDepth) * kDepth, begin = rank * share;
    const int rows = max(0, min(share, tile.depth - begin)), steps = (rows + kDepth - 1) / kDepth;
    const auto fetch = [&](int step) {
        if (step < steps) {
            const std::uint32_t to = stages + step % kStages * kStageBytes;
            const std::int64_t row = begin + step * kDepth;
            stage(tile.dz + row * tile.ld_dz, tile.ld_dz, rows - step * kDepth, tile.outputs, to);
            stage(tile.x + row * tile.ld_x, tile.ld_x, rows - step * kDepth, tile.inputs, to + kOperandBytes);
        }
        commit_copies();
    };
    float sums[2][32] = {};
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) fetch(s);
    for (int s = 0; s < steps; ++s) {
        hopper::products_wait<0>();  // of the stage that is filled next
        await_copies<kStages - 2>();
        hopper::copies_visible();
        __syncthreads();
        const std::uint32_t from = stages + s % kStages * kStageBytes;
        multiply_stage(sums, from, from + kOperandBytes, group);
        fetch(s + kStages - 1);
    }
    hopper::products_wait<0>();
    hopper::hold(sums[0]);
    hopper::hold(sums[1]);
    __shared__ float shared[32];
    float squares = 0;
    const auto leave_squares = [&] {
        if (tile.squares == nullptr) return;
        squares = block_sum(squares, shared);
        if (threadIdx.x == 0) tile.squares[rank] = squares;
    };
    if (shares == 1) {
#pragma unroll
        for (int i = 0; i < kFragments; ++i) squares += put_fragment(tile, i, fragment_of(sums, i));
        leave_squares();
        return;
    }
    __syncthreads();  // the last stage has been read
    auto* mine = reinterpret_cast<float4*>(memory) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) mine[i * kThreads] = fragment_of(sums, i);
    cluster_arrive();
    cluster_wait();
    const int each = kFragments / shares;
    for (int i = rank * each; i < (rank + 1) * each; ++i) {
        float4 total = sums_of_rank(mine + i * kThreads, 0);
        for (int r = 1; r < shares; ++r) {
            const float4 more = sums_of_rank(mine + i * kThreads, r);
            total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
        }
        squares += put_fragment(tile, i, total);
    }
    leave_squares();
    cluster_arrive();  // no block exits while others read its memory
    cluster_wait();
}

int tiles_of(const Operand& dw) { return dw.k * dw.g * ((dw.rows + kTile - 1) / kTile) * ((dw.cols + kTile - 1) / kTile); }

/// `squares`: [K][tiles of a member][shares], or empty.
void append_tiles(std::vector<SplitTile>& tiles, const Bound& b, const DeviceTable& squares, int shares) {
    using namespace linear_wgrad;
    const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
    auto* to = static_cast<float*>(squares);
    for (int k = 0; k < ow.k; ++k)
        for (int g = 0; g < ow.g; ++g)
            for (int row = 0; row < ow.rows; row += kTile)
                for (int col = 0; col < ow.cols; col += kTile) {
                    tiles.push_back({oz.at<const bf16>(k, g) + row, ox.at<const bf16>(k, g) + col, ow.at<float>(k, g, row) + col,
                                     to, static_cast<std::int32_t>(oz.stride_row), static_cast<std::int32_t>(ox.stride_row),
                                     static_cast<std::int32_t>(ow.stride_row), oz.rows, std::min(kTile, ow.rows - row),
                                     std::min(kTile, ow.cols - col), b.accumulates(dw)});
                    if (to != nullptr) to += shares;
                }
}

/// Blocks that share a tile's rows: as many as the device holds at once, at most a portable cluster.
int shares_for(const Context& c, int tiles) {
    int shares = 1;
    while (dependent_launches() && shares < 8 && 2 * shares * tiles <= kBlocks * c.multiprocessors) shares *= 2;
    return shares;
}

/// Of few tiles each, which are filled: larger products keep the device busy by themselves, and the library is faster then.
bool is_small(const Context& c, const Bound& b) {
    using namespace linear_wgrad;
    constexpr int kMostTiles = 8;
    const Operand &to = b[dw], &from = b[dz], &in = b[x];
    const std::int64_t area = std::int64_t{tiles_of(to)} * kTile * kTile;
    return in.dtype == tensor::DType::bf16 && from.dtype == tensor::DType::bf16 && to.dtype == tensor::DType::f32 &&
           in.rows >= c.library_rows && to.count() > 0 && to.rows % 8 == 0 && to.cols % 8 == 0 && 4 * to.count() >= 3 * area &&
           tiles_of(to) <= kMostTiles * to.k * to.g && whole_runs(from) && whole_runs(in) && whole_runs(to);
}

}  // namespace

bool fits_split_wgrad(const Context& c, std::span<const Bound> wgrads) {
    int tiles = 0;
    for (const Bound& b : wgrads) tiles += tiles_of(b[linear_wgrad::dw]);
    // Pinned runs keep the order of each sum whatever stands beside it. The library splits each product over the whole device; on
    // a part of it this kernel would be slower.
    return !c.deterministic && wgrads.size() > 1 && has_tile_products() && c.shared_limit >= kBytes &&
           4 * tiles * shares_for(c, tiles) >= 3 * c.multiprocessors &&
           std::ranges::all_of(wgrads, [&](const Bound& b) { return is_small(c, b); });
}

KernelResult make_split_wgrad(Context& c, std::span<const Bound> wgrads) {
    int count = 0;
    for (const Bound& b : wgrads) count += tiles_of(b[linear_wgrad::dw]);
    const int shares = shares_for(c, count);
    std::vector<SplitTile> tiles;
    std::vector<DeviceTable> squares;
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        MILLRACE_LET(left, leave_squares(c, dw, tiles_of(dw) / dw.k * shares));
        append_tiles(tiles, b, left, shares);
        squares.push_back(left);
    }
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(SplitTile)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(split_wgrad_kernel)));
    const dim3 grid(static_cast<unsigned>(count), 1, static_cast<unsigned>(shares));
    return make_kernel([table, squares, grid, stream = c.stream, blocks = static_cast<unsigned>(shares)] {
        launch_clusters(split_wgrad_kernel, grid, dim3(kThreads), blocks, kBytes, stream, table);
    });
}

}  // namespace millrace::ops::cuda
