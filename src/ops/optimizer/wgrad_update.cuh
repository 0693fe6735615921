#pragma once
// Tables of the kernel that computes weight gradients and applies them at once (tile_update.cu).

#include <vector>

#include "ops/optimizer/update.cuh"

namespace millrace::ops::cuda {

constexpr int kUpdateOutputs = 128, kUpdateInputs = 128, kUpdateDepth = 128;  ///< of a tile, at most

/// Parameters of one group: a tile of dw = dz^T x, or up to kUpdateOutputs * kUpdateInputs neighbours whose gradients were
/// stored.
struct alignas(16) UpdateTile {
    const float* stored;           ///< the neighbours' gradients; null: dw
    const bf16 *dz, *x;            ///< first column of the tile, row 0; rows begin at multiples of 16 bytes
    std::int32_t ld_dz, ld_x;      ///< elements from row to row
    std::int32_t rows;             ///< of the batch
    std::int32_t outputs, inputs;  ///< rows and columns of the tile, a multiple of 4; stored: 1 and how many neighbours there are
    std::int32_t ld;               ///< elements from row to row of the parameters; stored: kUpdateInputs
    std::uint32_t at;              ///< first parameter in the arenas of all members
    std::int32_t member, group;
};

/// Blocks of the kernel that run at once; 0: this GPU has not got the shared memory.
int tile_update_blocks(const Context& c);
/// Finishes the norm, updates what the tiles cover, reports and closes the step. The kernel holds `held`.
KernelResult make_tile_update(Context& c, const UpdateArgs& a, const std::vector<UpdateTile>& tiles, const DeviceTable& held);

}  // namespace millrace::ops::cuda
