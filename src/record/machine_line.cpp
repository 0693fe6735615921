#include "record/machine_line.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace::record {
namespace {

constexpr double kGigabyte = 1024.0 * 1024 * 1024;

bool known(const std::optional<double>& value) { return value && std::isfinite(*value); }

void append(std::string& line, const std::string& item) {
    if (!line.empty()) line += " | ";
    line += item;
}

void append_memory(std::string& line, const std::string& label, const std::optional<double>& used,
                   const std::optional<double>& total) {
    if (!known(used)) return;
    if (known(total) && *total > 0)
        append(line,
               fmt::format("{}:{:4.1f}/{:.1f}GB({:4.1f}%)", label, *used / kGigabyte, *total / kGigabyte, 100 * *used / *total));
    else
        append(line, fmt::format("{}:{:4.1f}GB", label, *used / kGigabyte));
}

}  // namespace

std::string machine_line(const MachineLineValues& values) {
    std::string line;
    for (std::size_t at = 0; at < values.gpus.size(); ++at) {
        const MachineLineValues::Gpu& gpu = values.gpus[at];
        const std::string number = values.gpus.size() > 1 ? std::to_string(at) : "";
        if (known(gpu.utilization_percent)) append(line, fmt::format("GPU{}:{:3.0f}%", number, *gpu.utilization_percent));
        append_memory(line, "VRAM" + number, gpu.memory_used_bytes, gpu.memory_total_bytes);
    }
    if (known(values.cpu_percent)) append(line, fmt::format("CPU:{:5.1f}%", *values.cpu_percent));
    append_memory(line, "RAM", values.ram_used_bytes, values.ram_total_bytes);
    return line.empty() ? "N/A" : line;
}

MachineLineValues machine_line_values(const sense::Sample& sample) {
    MachineLineValues values;
    for (const sense::GpuReading& gpu : sample.gpus)
        values.gpus.push_back({gpu.utilization, gpu.memory_used_bytes, gpu.memory_total_bytes});
    values.cpu_percent = sample.cpu.utilization;
    values.ram_used_bytes = sample.memory.used_bytes;
    values.ram_total_bytes = sample.memory.total_bytes;
    return values;
}

}  // namespace millrace::record
