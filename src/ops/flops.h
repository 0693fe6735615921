#pragma once
#include <cstdint>

#include "ops/op.h"

namespace millrace::ops {

/// Floating-point operations of the matrix products in one run of `record`, a multiplication and an addition counted as two; 0
/// for every other operator, as is the custom when a share of the device's peak is stated.
std::int64_t flops_of(const Record& record);

}  // namespace millrace::ops
