#include "train/machine_report.h"

namespace millrace::train {
namespace {

using record::Statistics;

std::optional<double> mean_of(const record::SampleSummary& summary, std::string_view metric, int index = -1) {
    const std::optional<Statistics> found = summary.of(metric, index);
    return found ? std::optional(found->mean) : std::nullopt;
}

std::optional<double> peak_of(const record::SampleSummary& summary, std::string_view metric, int index = -1) {
    const std::optional<Statistics> found = summary.of(metric, index);
    return found ? std::optional(found->maximum) : std::nullopt;
}

}  // namespace

MachineReport machine_report(const record::SampleSummary& summary) {
    MachineReport report;
    report.samples = summary.samples();
    if (report.samples == 0) return report;
    record::MachineLineValues::Gpu gpu{mean_of(summary, "gpu/utilization_percent", 0),
                                       mean_of(summary, "gpu/memory_used_bytes", 0),
                                       mean_of(summary, "gpu/memory_total_bytes", 0)};
    if (gpu.utilization_percent || gpu.memory_used_bytes) report.line.gpus.push_back(gpu);
    report.line.cpu_percent = mean_of(summary, "cpu/utilization_percent");
    report.line.ram_used_bytes = mean_of(summary, "ram/used_bytes");
    report.line.ram_total_bytes = mean_of(summary, "ram/total_bytes");
    // The driver's figure is of a window of its own, which short runs and pauses throw off; the counters cover the samples
    // exactly.
    report.resident_percent = mean_of(summary, "gpu/graphics_active_percent", 0);
    if (!report.resident_percent) report.resident_percent = gpu.utilization_percent;
    report.sm_active_percent = mean_of(summary, "gpu/sm_active_percent", 0);
    report.tensor_active_percent = mean_of(summary, "gpu/tensor_active_percent", 0);
    report.dram_active_percent = mean_of(summary, "gpu/dram_active_percent", 0);
    report.vram_peak_bytes = peak_of(summary, "gpu/memory_used_bytes", 0);
    report.ram_peak_bytes = peak_of(summary, "ram/used_bytes");
    report.gpu_joules = summary.joules(0);
    report.seconds = summary.seconds();
    report.power_watts = mean_of(summary, "gpu/power_watts", 0);
    if (summary.of("gpu/throttle_bits", 0)) report.throttled_share = summary.throttled_share(0);
    report.throttle_reasons = sense::throttle_text(summary.throttled(0));
    return report;
}

}  // namespace millrace::train
