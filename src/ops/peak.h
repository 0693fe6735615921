#pragma once
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace millrace::ops {

/// The part of a GPU that its peak follows from.
struct Chip {
    std::string_view name;  ///< as the driver gives it
    int major = 0, minor = 0, multiprocessors = 0;
    double clock_hertz = 0;  ///< the highest
};
/// Dense products per second: the data sheet's figure for chips that are known by name (dense, so half of what is printed with
/// sparsity), else multiprocessors x clock x what one of them does per clock. Absent where the operand type has no such unit.
std::optional<double> peak_flops(const Chip& chip, tensor::DType operands);

}  // namespace millrace::ops
