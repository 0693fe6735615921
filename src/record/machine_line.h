#pragma once
// The machine on one line, for progress displays, epoch summaries and plain output:
//
//     GPU: 85% | VRAM:12.3/24.0GB(51.2%) | CPU: 45.2% | RAM:18.4/64.0GB(28.8%)
//
// GB are 2^30 bytes, as the monitors people compare with print them.

#include <optional>
#include <string>
#include <vector>

#include "sense/sample.h"

namespace millrace::record {

/// Percentages are 0..100. What is absent or not finite is left out of the line.
struct MachineLineValues {
    struct Gpu {
        std::optional<double> utilization_percent, memory_used_bytes, memory_total_bytes;
    };
    std::vector<Gpu> gpus;
    std::optional<double> cpu_percent, ram_used_bytes, ram_total_bytes;
};

/// One GPU is "GPU: 85% | VRAM:...", several are numbered "GPU0: 85% | VRAM0:... | GPU1:...". Memory whose total is unknown shows
/// what is used alone: "VRAM:12.3GB". "N/A" when nothing at all is known.
std::string machine_line(const MachineLineValues& values);

/// One reading.
MachineLineValues machine_line_values(const sense::Sample& sample);

}  // namespace millrace::record
