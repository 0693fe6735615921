#pragma once
// samples.jsonl of a run directory as a timeline has it, and which of them are the program's.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "diagnose/reading/run_reader.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Samples since a process is recorded: what others did on the GPU before is not the program's.
std::span<const MachineSample> since_recorded(const Timeline& timeline);

/// Rows of kind `sample`, as GPU number `gpu` (as CUDA numbers them) and the machine had it; `time_of` takes seconds since 1970.
/// Rows without a possible time are left out.
std::vector<MachineSample> machine_samples(const RunStream& stream, std::uint32_t gpu,
                                           const std::function<Time(double)>& time_of);

/// Cores that the rows have, 0 without any.
std::uint32_t processors_of(const RunStream& stream);
/// Of the GPU's link, where it was sampled.
std::optional<double> link_speed_of(const RunStream& stream, std::uint32_t gpu);

/// "NVIDIA H200" of a manifest's "cuda:0 NVIDIA H200"; empty for a CPU.
std::string device_name_of(const record::Manifest& manifest);
/// "python train.py --epochs 3".
std::string title_of(const record::Manifest& manifest);
/// What a reader of a run should know about its end and its files.
void add_run_remarks(const RunContents& run, Timeline& timeline);

}  // namespace millrace::diagnose
