#pragma once
// How fast the link of a GPU probably is where it was not written down: traces of other profilers, recordings made without NVML.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

struct ComputeCapability {
    unsigned major = 0, minor = 0;
};

/// Bytes/s from host to device of a 16-lane PCIe link of the generation that such GPUs came with. By the name ("NVIDIA H200",
/// "Tesla V100-SXM2-16GB") where it is known, else by the capability. Absent for GPUs that share the host's memory or hang on it
/// by another link, and where neither tells anything.
std::optional<double> assumed_link_speed(std::string_view name, std::optional<ComputeCapability> capability = std::nullopt);

/// Words of a device's name in capitals: "NVIDIA", "A100", "SXM4", "80GB".
std::vector<std::string> words_of_device(std::string_view name);

/// Fills in the link of a timeline that has none, and marks it as assumed.
void assume_link(Timeline& timeline, std::optional<ComputeCapability> capability = std::nullopt);

}  // namespace millrace::diagnose
