#pragma once
// How many blocks of a kernel a GPU runs at a time, by the limits that NVIDIA publishes for each compute capability.

#include <optional>

#include "diagnose/reading/assumed_link.h"
#include "record/probe_records.h"

namespace millrace::diagnose {

/// Fills in the timeline's multiprocessors where the kind of GPU is known: by `capability` and `count`, else by its name. Part of
/// a GPU (MIG) stays unknown.
void describe_multiprocessors(Timeline& timeline, std::optional<ComputeCapability> capability = std::nullopt,
                              std::uint32_t count = 0);

/// Blocks / (multiprocessors x blocks resident on each): 1 fills the GPU once. Absent where anything of that is not known.
std::optional<double> waves_of(const record::LaunchSize& size, const Multiprocessors& gpu);

}  // namespace millrace::diagnose
