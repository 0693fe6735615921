#pragma once
// Descriptions of operands for the bulk tensor copies of compute capability 9.0.

#include <cuda.h>

#include "tensor/view.h"

namespace millrace::ops::cuda::tile {

/// Whether bulk tensor copies can read the operand: 16 bits an element, rows that begin at multiples of 16 bytes.
bool has_tensor_map(const tensor::Operand& o);

/// A map of [K][G][rows][cols] whose boxes are 64 columns of `box_rows` rows, in the 128-byte swizzle; zeros beyond the borders.
/// Operands that groups or members share have one matrix along that axis. False: the driver has no such maps.
bool make_tensor_map(CUtensorMap& map, const tensor::Operand& o, int box_rows);

}  // namespace millrace::ops::cuda::tile
