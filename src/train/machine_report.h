#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "record/machine_line.h"
#include "record/statistics.h"

namespace millrace::train {

/// What the machine did over a stretch of training. GPU figures are those of the first visible one, which trains.
struct MachineReport {
    std::uint64_t samples = 0;       ///< looks at the machine; 0: everything below is absent
    record::MachineLineValues line;  ///< means
    std::optional<double>
        resident_percent;  ///< of the time some kernel was on the GPU: by its counters, else the driver's utilisation
    std::optional<double> sm_active_percent, tensor_active_percent, dram_active_percent;
    std::optional<double> vram_peak_bytes, ram_peak_bytes;
    std::optional<double> gpu_joules;  ///< by the GPU's counter, over `seconds`
    double seconds = 0;                ///< from the first look to the last
    std::optional<double> power_watts;
    std::optional<double> throttled_share;  ///< of the samples that could tell
    std::string throttle_reasons;           ///< "power cap, thermal"
};

MachineReport machine_report(const record::SampleSummary& summary);

}  // namespace millrace::train
