#pragma once
// Tables of the kernel that computes weight gradients and applies them at once (tile_update.cu).

#include <vector>

#include "ops/optimizer/update.cuh"

namespace millrace::ops::cuda {

constexpr int kUpdateOutputs = 32, kUpdateInputs = 800, kUpdateDepth = 128;                ///< of a tile, at most
constexpr int kUpdateElements = kUpdateOutputs * kUpdateInputs, kUpdateStored = 8 * 1024;  ///< the latter of stored gradients

/// Parameters of one group: rows of dw = dz^T x, whole ones unless these are longer than a tile, or neighbours whose gradients
/// were stored.
struct alignas(16) UpdateTile {
    const float* stored;          ///< the gradients; null: dw
    const std::uint16_t *dz, *x;  ///< bits of bf16 or f16, as the copy has; first column of the tile, row 0; rows begin at
                                  ///< multiples of 16 bytes
    std::int32_t ld_dz, ld_x;     ///< elements from row to row
    std::int32_t rows;            ///< of the batch
    std::int32_t outputs, inputs;
    std::uint32_t at;    ///< first parameter in the arenas of all members
    std::int32_t count;  ///< how many there are, a multiple of 4
    std::int32_t gap;    ///< elements between the end of a row and the next one
    std::int32_t member, group;
};

/// Blocks of the kernel that run at once; 0: this GPU has not got the shared memory.
int tile_update_blocks(const Context& c);
/// Finishes the norm, updates what the tiles cover, reports and closes the step. The kernel holds `held`.
KernelResult make_tile_update(Context& c, const UpdateArgs& a, const std::vector<UpdateTile>& tiles, const DeviceTable& held);

}  // namespace millrace::ops::cuda
