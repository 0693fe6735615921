#pragma once
// How busy the GPU was between two moments, by the chip's own counters (GPM).

#include <optional>

#include "base/clock.h"
#include "sense/machine.h"

namespace millrace::bench {

/// % of the time, averaged over the chip; absent where the GPU or its driver counts nothing.
struct GpuActivity {
    std::optional<double> sm, tensor;
};

/// Of the first GPU that CUDA shows, since the reading before; absent on the first one and without a source or a GPU.
GpuActivity read_activity(sense::Source* source, const base::Clock& clock = base::SteadyClock::shared());

}  // namespace millrace::bench
