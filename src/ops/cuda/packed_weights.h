#pragma once
// Weights in the order in which the tiled products read them, made once per run of a program.

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
class PackedWeights {
public:
    /// The packed form of `weights` for the records under preparation: an earlier one's that no record has made stale since, or
    /// a new one whose packing is added to `before`.
    static base::Result<std::shared_ptr<PackedWeights>> of(Context&, const std::vector<tensor::Operand>& weights,
                                                           const PackShape&, Kernels& before);
    [[nodiscard]] const void* data() const { return table_.get(); }
    /// Depth block where matrix `i` begins.
    [[nodiscard]] int first(std::size_t i) const { return first_[i]; }

private:
    /// What a matrix is made of; two of one address may have different shapes.
    struct Source {
        const void* data;
        int rows, cols;
        std::int64_t stride;
        bool operator==(const Source&) const = default;
    };
    std::vector<Source> key_;
    std::size_t made_ = 0;  ///< before this record
    PackShape shape_;
    std::vector<int> first_;
    DeviceTable table_;
};

}  // namespace millrace::ops::cuda
