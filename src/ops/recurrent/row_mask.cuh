#pragma once
// Which rows take part in a step of a recurrent layer.

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

/// Both may be absent: all rows take part.
struct RowMask {
    Mat<const float> mask;
    Mat<const std::int32_t> flag;
    __device__ bool takes_part(int k, int row) const {
        return (!mask || *mask.row(k, 0, row) != 0) && (!flag || *flag.row(k, 0, 0) != 0);
    }
};
inline RowMask row_mask(const tensor::Operand& mask, const tensor::Operand& flag) { return {mask, flag}; }

}  // namespace millrace::ops::cuda
