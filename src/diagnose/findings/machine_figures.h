#pragma once
// What samples of the machine say by themselves: memory that is nearly full, a GPU that slows itself down.

#include <optional>
#include <span>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/answer/policy.h"

namespace millrace::diagnose {

struct MachineFigures {
    std::optional<double> utilization;  ///< mean, 0 to 1
    double utilization_samples = 0;
    double memory_share = 0;         ///< the most that was in use, of the device's; 0: not known
    double throttle_samples = 0;     ///< that say whether the GPU slows itself down
    double capped = 0;               ///< of them, those in which power alone does it: that is how a full GPU looks
    std::vector<Time> slow_moments;  ///< of the others in which it does
    std::string slow_reason;

    [[nodiscard]] double slowed_share() const {
        return throttle_samples > 0 ? static_cast<double>(slow_moments.size()) / throttle_samples : 0;
    }
};
MachineFigures figures_of(std::span<const MachineSample> samples);

/// Findings without a cost, a gain or a confidence; absent below their bands. `failed`: allocations.
std::optional<Finding> memory_edge(const MachineFigures& figures, std::size_t failed, const char* fix);
std::optional<Finding> throttled(const MachineFigures& figures);

Severity severity_of(double share, const Band& band);

}  // namespace millrace::diagnose
