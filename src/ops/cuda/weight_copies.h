#pragma once
// Copies of weights in the order in which products read them, made once for all records up to the next one that writes to the
// weights. The first record's steps bring a copy up to date, so they have to run whenever those of others do; records of a region
// share copies that are made ahead of it. Steps hold the memory of what they read.

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// Which weights a packed tile holds: its row 64 g + m is output g * group_stride + tile * tile_stride + packed_column(m).
struct PackShape {
    int groups = 1, tiles = 1;
    int group_stride = 0, tile_stride = 0;
    bool transposed = false;  ///< w is [depth, outputs] instead of [outputs, depth]
    bool operator==(const PackShape&) const = default;
};

/// Weight matrices one below the other along the summed index, each filled up to whole blocks of 64.
struct PackedWeights {
    const void* data;
    std::vector<int> first;  ///< depth block where each matrix begins
};
base::Result<PackedWeights> pack_weights(Context&, const std::vector<tensor::Operand>& weights, const PackShape&, Kernels& steps);

/// `out`: a copy of `in` with `cols` >= in.cols columns (the further ones zero) whose rows begin at multiples of 16 bytes.
base::Status pad_weights(Context&, const tensor::Operand& in, int cols, tensor::Operand& out, Kernels& steps);

/// A copy that was made (Context::copies).
struct WeightCopy {
    std::vector<tensor::Operand> of;
    PackShape shape;
    int cols;          ///< of a padded one; 0: packed
    std::size_t made;  ///< before this record
    DeviceTable memory = {};
};

}  // namespace millrace::ops::cuda
