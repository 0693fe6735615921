#pragma once
// What the name or the compute capability of a GPU says where nothing else does (traces of other profilers, recordings made
// without NVML): how fast its link probably is, and how many blocks of a kernel it runs at a time, by the limits that NVIDIA
// publishes.

#include <optional>
#include <string_view>

#include "diagnose/timeline/timeline.h"
#include "record/probe_records.h"

namespace millrace::diagnose {

struct ComputeCapability {
    unsigned major = 0, minor = 0;
};

/// Bytes/s from host to device of a 16-lane PCIe link of the generation that such GPUs came with. By the name ("NVIDIA H200",
/// "Tesla V100-SXM2-16GB") where it is known, else by the capability. Absent for GPUs that share the host's memory or hang on it
/// by another link, and where neither tells anything.
std::optional<double> assumed_link_speed(std::string_view name, std::optional<ComputeCapability> capability = std::nullopt);

/// Fills in the link of a timeline that has none, and marks it as assumed.
void assume_link(Timeline& timeline, std::optional<ComputeCapability> capability = std::nullopt);

/// Fills in the timeline's multiprocessors where the kind of GPU is known: by `capability` and `count`, else by its name. Part of
/// a GPU (MIG) stays unknown.
void describe_multiprocessors(Timeline& timeline, std::optional<ComputeCapability> capability = std::nullopt,
                              std::uint32_t count = 0);

/// Blocks / (multiprocessors x blocks resident on each): 1 fills the GPU once. Absent where anything of that is not known.
std::optional<double> waves_of(const record::LaunchSize& size, const Multiprocessors& gpu);

}  // namespace millrace::diagnose
