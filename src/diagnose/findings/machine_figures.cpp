#include "diagnose/findings/machine_figures.h"

#include <fmt/core.h>

#include <algorithm>

namespace millrace::diagnose {

MachineFigures figures_of(std::span<const MachineSample> samples) {
    MachineFigures figures;
    double utilization = 0;
    for (const MachineSample& sample : samples) {
        if (sample.gpu_utilization) utilization += *sample.gpu_utilization, figures.utilization_samples += 1;
        if (sample.memory_used_bytes && sample.memory_total_bytes && *sample.memory_total_bytes > 0)
            figures.memory_share = std::max(figures.memory_share, *sample.memory_used_bytes / *sample.memory_total_bytes);
        if (!sample.throttled) continue;
        figures.throttle_samples += 1;
        if (!*sample.throttled) continue;
        const auto says = [&](const char* word) { return sample.throttle_reason.find(word) != std::string::npos; };
        if (says("thermal") || says("hardware")) {
            figures.slow_moments.push_back(sample.time);
            figures.slow_reason = sample.throttle_reason;
        } else {
            figures.capped += 1;
        }
    }
    if (figures.utilization_samples > 0) figures.utilization = std::clamp(utilization / figures.utilization_samples, 0.0, 1.0);
    return figures;
}

std::optional<Finding> memory_edge(const MachineFigures& figures, std::size_t failed, const char* fix) {
    const double most = figures.memory_share;
    if (most < kPolicy.memory_edge.warn && failed == 0) return std::nullopt;
    Finding finding;
    finding.kind = Kind::kMemoryEdge;
    finding.severity = failed > 0 || most >= kPolicy.memory_edge.critical ? Severity::kWarning : Severity::kNote;
    finding.what = "Device memory is nearly full: a longer batch may end the run.";
    if (most > 0) finding.evidence = fmt::format("Up to {:.1f} % of the device's memory was in use.", 100 * most);
    if (failed > 0)
        finding.evidence +=
            fmt::format("{}{} allocations failed and were tried again after a flush.", most > 0 ? " " : "", failed);
    finding.fix = fix;
    return finding;
}

std::optional<Finding> throttled(const MachineFigures& figures) {
    if (figures.slowed_share() < kPolicy.throttled.warn) return std::nullopt;
    Finding finding;
    finding.kind = Kind::kThrottled;
    finding.severity = severity_of(figures.slowed_share(), kPolicy.throttled);
    finding.what = "The GPU slows itself down.";
    finding.evidence = fmt::format("{:.0f} % of the samples report: {}.", 100 * figures.slowed_share(), figures.slow_reason);
    finding.fix =
        "Look after cooling (fans, dust, neighbours in the rack) or lower the power limit to a steady one (`nvidia-smi -pl`).";
    return finding;
}

Severity severity_of(double share, const Band& band) {
    return share >= band.critical ? Severity::kCritical : share >= band.warn ? Severity::kWarning : Severity::kNote;
}

}  // namespace millrace::diagnose
