// Weight gradients of many layers and members over few rows, where memory decides: each block goes through tiles of dw = dz^T x,
// and while it multiplies one step of kDepth rows and writes tiles, the operands of the next steps are under way. Products are
// those of a warpgroup (compute capability 9.0a), whose summed index are the rows of both operands.

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/tensor_core.cuh"
#include "ops/cuda/tile_product.cuh"
#include "ops/cuda/warpgroup_product.cuh"
#include "ops/dense/wgrad_tile.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kThreads = 2 * kRingOutputs, kDepth = 64, kStages = 3;
constexpr int kBlocks = 2;  ///< that a multiprocessor holds
/// Operands lie in shared memory in parts of 64 columns, each as hopper.cuh says: two of dz, one for each warpgroup, and two of
/// x.
constexpr std::uint32_t kPartBytes = kDepth * 128, kRight = kRingOutputs / 64 * kPartBytes;
constexpr std::uint32_t kStageBytes = kRight + kRingInputs / 64 * kPartBytes;
constexpr std::size_t kBytes = 1024 + kStages * kStageBytes;

__device__ int next(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

/// Begins copies of kDepth rows of kColumns columns to the address `to`, which is `memory` behind `base`: zeros from row `rows`
/// and column `cols` on. vector: rows begin at multiples of 16 bytes.
template <int kColumns>
__device__ void stage(const bf16* from, int ld, int rows, int cols, bool vector, std::uint32_t to, unsigned char* memory,
                      std::uint32_t base) {
    if (vector) {
        hopper::stage_columns<kThreads, kDepth, kColumns>(from, ld, rows, cols, to);
        return;
    }
    constexpr int kPieces = kColumns / 8;
    const int row = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
    to += piece / 8 * kPartBytes + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
    for (int i = 0; i < kDepth; i += kThreads / kPieces)
        *reinterpret_cast<uint4*>(memory + (to + 128 * i - base)) =
            fetch8<false>(row + i < rows ? from + std::int64_t{row + i} * ld : nullptr, 8 * piece, cols);
}

/// Writes a thread's sums. Returns the sum of the squares of what was written.
__device__ float put_sums(const WgradTile& tile, const float (&sums)[2][32]) {
    const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    const int col = static_cast<int>(threadIdx.x) % 4 * 2;
    float squares = 0;
    if (tile.pairs && !tile.accumulate && tile.outputs == kRingOutputs && tile.inputs == kRingInputs) {
        const std::int64_t ld = tile.ld_dw;
        float *at = tile.dw + row * ld + col, *below = at + 8 * ld;
#pragma unroll
        for (int j = 0; j < kRingInputs / 8; ++j) {
            const float* v = sums[j / 8] + j % 8 * 4;
            *reinterpret_cast<float2*>(at + 8 * j) = make_float2(v[0], v[1]);
            *reinterpret_cast<float2*>(below + 8 * j) = make_float2(v[2], v[3]);
            squares += v[0] * v[0] + v[1] * v[1] + (v[2] * v[2] + v[3] * v[3]);
        }
        return squares;
    }
    if (row >= tile.outputs) return 0;  // most warps of a small layer
#pragma unroll
    for (int j = 0; j < kRingInputs / 8; ++j) {
        if (8 * j >= tile.inputs) break;
        const float* v = sums[j / 8] + j % 8 * 4;
        squares += put_pair(tile, row, 8 * j + col, v[0], v[1]);
        squares += put_pair(tile, row + 8, 8 * j + col, v[2], v[3]);
    }
    return squares;
}

__global__ void __launch_bounds__(kThreads, kBlocks) ring_wgrad_kernel(const WgradTile* tiles, int count) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ WgradTile of_stage[kStages];
    __shared__ float shared[32];
    const std::uint32_t base = shared_address(memory_of_block), stages = (base + 1023) / 1024 * 1024;
    // What is fetched next: `step` of the tile `fetched`, number `number`. The tile behind it is read early, for a table is far.
    // No kernel writes the table.
    int number = blockIdx.x, step = 0, filled = 0;
    const int stride = gridDim.x;
    WgradTile fetched = tiles[number], ahead = tiles[min(number + stride, count - 1)];
    begin_kernel();
    const auto fetch = [&] {
        if (number < count) {
            const std::uint32_t to = stages + filled * kStageBytes;
            const std::int64_t row = step * kDepth;
            const int rows = fetched.depth - step * kDepth;
            stage<kRingOutputs>(fetched.dz + row * fetched.ld_dz, fetched.ld_dz, rows, fetched.outputs, fetched.vector_dz, to,
                                memory_of_block, base);
            stage<kRingInputs>(fetched.x + row * fetched.ld_x, fetched.ld_x, rows, fetched.inputs, fetched.vector_x, to + kRight,
                               memory_of_block, base);
            if (threadIdx.x == 0) of_stage[filled] = fetched;
            filled = next(filled);
            ++step;
            if (rows <= kDepth) {
                step = 0;
                number += stride;
                fetched = ahead;
                ahead = tiles[min(number + stride, count - 1)];
            }
        }
        commit_copies();
    };
    for (int s = 0; s < kStages - 1; ++s) fetch();
    int read = 0;
    for (int n = blockIdx.x; n < count; n += stride) {
        float sums[2][32] = {};
        for (int left = -1; left != 0; --left) {
            await_copies<kStages - 2>();
            hopper::copies_visible();
            __syncthreads();  // all copies are there, and the stage that is filled next has been read
            if (left < 0) left = max(1, (of_stage[read].depth + kDepth - 1) / kDepth);
            const std::uint32_t from = stages + read * kStageBytes;
            const std::uint64_t dz = hopper::summed_rows(from + threadIdx.x / 128 * kPartBytes, kPartBytes),
                                x = hopper::summed_rows(from + kRight, kPartBytes);
            hopper::products_begin();
#pragma unroll
            for (int i = 0; i < kDepth / 16; ++i)
                hopper::multiply_columns(sums[0], sums[1], dz + i * (16 * 128 / 16), x + i * (16 * 128 / 16));
            hopper::products_commit();
            fetch();
            hopper::products_wait<0>();
            if (left > 1) read = next(read);
        }
        hopper::hold(sums[0]);
        hopper::hold(sums[1]);
        const WgradTile& tile = of_stage[read];
        const float squares = put_sums(tile, sums);
        put_squares(tile, squares, shared);
        read = next(read);
    }
}

}  // namespace

bool takes_ring_wgrad(const Context& c, const std::vector<WgradTile>& tiles) {
    // A tile takes as long whatever it holds. One that is a quarter full is a full one of 64 x 64.
    std::int64_t elements = 0;
    for (const WgradTile& t : tiles) elements += t.outputs * t.inputs;
    const auto count = static_cast<std::int64_t>(tiles.size());
    return has_tile_products() && c.shared_limit >= kBytes && count > kBlocks * c.multiprocessors &&
           elements > count * (kRingOutputs * kRingInputs / 4);
}

KernelResult make_ring_wgrad(Context& c, const std::vector<WgradTile>& tiles, std::vector<DeviceTable> held) {
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(WgradTile)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(ring_wgrad_kernel)));
    return make_kernel([table, held = std::move(held), stream = c.stream, count = static_cast<int>(tiles.size()),
                        grid = dim3(static_cast<unsigned>(kBlocks * c.multiprocessors))] {
        launch(ring_wgrad_kernel, grid, dim3(kThreads), kBytes, stream, table, count);
    });
}

}  // namespace millrace::ops::cuda
