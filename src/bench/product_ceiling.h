#pragma once
// What the device reaches on a product that has nothing around it: the measure for a whole step.

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "ops/backend.h"
#include "tape/buffer.h"

namespace millrace::bench {

/// FLOP per second of one product of two [size, size] matrices of random numbers (zeros would let a chip clock higher), the
/// median of seven windows of at least `window_ms`. Products are the backend's own, with operands of `precision`.
base::Result<double> product_ceiling(ops::Backend& backend, tape::Precision precision, std::int32_t size, double window_ms = 50,
                                     const base::Clock& clock = base::SteadyClock::shared());

/// 8192 on a GPU; on a CPU 1536, beyond which nothing gets faster.
std::int32_t ceiling_size(ops::DeviceKind device);

}  // namespace millrace::bench
