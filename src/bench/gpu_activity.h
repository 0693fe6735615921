#pragma once
// How busy the GPU was between two moments, by the chip's own counters (GPM).

#include <memory>
#include <optional>

#include "base/clock.h"
#include "sense/machine.h"

namespace millrace::bench {

/// % of the time, averaged over the chip; absent where the GPU or its driver counts nothing.
struct GpuActivity {
    std::optional<double> sm, tensor;
};

class GpuActivityMeter {
public:
    /// Of the first GPU that CUDA shows. A source without a GPU gives nothing.
    explicit GpuActivityMeter(std::unique_ptr<sense::Source> source, const base::Clock& clock = base::SteadyClock::shared());
    /// Starts over.
    void begin();
    /// Since begin(); absent when that was a moment ago.
    [[nodiscard]] GpuActivity since_begin();

private:
    std::unique_ptr<sense::Source> source_;
    const base::Clock& clock_;
};

}  // namespace millrace::bench
