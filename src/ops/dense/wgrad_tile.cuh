#pragma once
// A tile of a weight gradient dw = dz^T x, as kernels that compute tiles of many layers in one launch find it in a table.

#include <vector>

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

struct WgradTile {
    const bf16 *dz, *x;  ///< first column of the tile, row 0
    float* dw;
    float* squares;  ///< where the sum of the squares of what was written goes; null: nowhere
    std::int32_t ld_dz, ld_x, ld_dw;
    std::int32_t depth;                ///< rows of the batch
    std::int32_t outputs, inputs;      ///< valid rows and columns of the tile
    std::uint8_t vector_dz, vector_x;  ///< rows begin at multiples of 16 bytes
    std::uint8_t pairs;                ///< and those of dw at multiples of 8
    std::uint8_t accumulate;
};

/// Two neighbours of a row of the tile. Returns the sum of the squares of what was written.
__device__ inline float put_pair(const WgradTile& tile, int row, int col, float first, float second) {
    if (row >= tile.outputs || col >= tile.inputs) return 0;
    float* at = tile.dw + std::int64_t{row} * tile.ld_dw + col;
    const bool both = col + 1 < tile.inputs;
    if (tile.accumulate) {
        first += at[0];
        if (both) second += at[1];
    }
    if (tile.pairs && both) {
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
    } else {
        at[0] = first;
        if (both) at[1] = second;
    }
    return first * first + (both ? second * second : 0);
}

/// `sum` over all threads of the block goes to the tile's squares; `shared` as in block_sum.
__device__ inline void put_squares(const WgradTile& tile, float sum, float* shared) {
    if (tile.squares == nullptr) return;
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) *tile.squares = sum;
}

/// Tiles of kRingOutputs x kRingInputs: blocks go through them, and the operands of the next ones are under way meanwhile. For
/// more tiles than run at once.
constexpr int kRingOutputs = 128, kRingInputs = 128;
bool takes_ring_wgrad(const Context& c, const std::vector<WgradTile>& tiles);
/// `held` lives as long as the kernel.
KernelResult make_ring_wgrad(Context& c, const std::vector<WgradTile>& tiles, std::vector<DeviceTable> held);

}  // namespace millrace::ops::cuda
