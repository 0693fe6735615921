#pragma once
// Pooling and relu of one window over all channels, once per instruction set (ops/cpu/isa.h).

#include <cstddef>
#include <cstdint>

#include "ops/cpu/isa.h"

namespace millrace::ops::cpu {

/// Window of `height` x `width` positions; position (i, j) begins i * row_stride + j * stride behind the first.
struct PoolWindow {
    int channels, height, width;
    std::ptrdiff_t row_stride, stride;
    bool relu;
};

struct PoolLoops {
    /// y = the largest of u + bias (bias may be null), and where it lies (chosen may be null).
    void (*forward)(const PoolWindow& window, const float* u, const float* bias, float* y, std::uint8_t* chosen);
    /// dz of all positions of the window: dy where it was chosen, else 0.
    void (*backward)(const PoolWindow& window, const float* dy, const std::uint8_t* chosen, float* dz);
};
MILLRACE_ISA_TABLE(PoolLoops, pool_loops)

}  // namespace millrace::ops::cpu
