#pragma once
// What the tests of the sinks share: a machine with two GPUs, a sample of it, and programs to judge what was written.

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "record/sinks.h"
#include "sense/machine.h"

namespace millrace::record::test_rig {

inline sense::MachineFacts two_gpus() {
    sense::MachineFacts facts;
    facts.cores = 2;
    facts.core_numbers = {4, 5};
    facts.host = "mill";
    facts.gpus.resize(2);
    for (int i = 0; i < 2; ++i) {
        facts.gpus[static_cast<std::size_t>(i)].index = i;
        facts.gpus[static_cast<std::size_t>(i)].uuid = "GPU-" + std::to_string(i);
        facts.gpus[static_cast<std::size_t>(i)].memory_total_bytes = 24.0 * (1ull << 30);
    }
    facts.gpus[0].name = "Wheel 9000, \"fast\"";
    facts.gpus[1].name = "Wheel\\1\n";
    return facts;
}

inline sense::Sample busy_sample(std::uint64_t sequence) {
    sense::Sample sample;
    sample.wall = 1762257600.25 + static_cast<double>(sequence);
    sample.sequence = sequence;
    sample.cpu.utilization = 45.25;
    sample.cpu.cores = {90.5, std::nullopt};
    sample.memory.used_bytes = 18.4e9;
    sample.gpus.resize(2);
    sample.gpus[0].utilization = 85;
    sample.gpus[0].memory_used_bytes = 12.0 * (1ull << 30);
    sample.gpus[0].power_watts = 350.04;
    sample.gpus[0].power_limit_watts = 700;
    sample.gpus[0].energy_joules = 123456.5;
    sample.gpus[0].temperature_celsius = 61;
    sample.gpus[0].sm_clock_mhz = 1980;
    return sample;
}

inline SinkRow row_of(const sense::Sample& sample) { return {RowKind::kSample, sample.wall, std::nullopt, points_of(sample)}; }

inline SinkRow training_row(RowKind kind, std::uint64_t step, double loss) {
    return {kind,
            1762257700.5,
            step,
            {{find_metric("loss"), -1, loss}, {find_metric("loss"), 1, loss / 2}, {find_metric("step_ms_p50"), -1, 2.5}}};
}

/// A value for every metric there is.
inline std::vector<SinkRow> everything() {
    SinkRow sample{RowKind::kSample, 1762257600.25, std::nullopt, {}}, interval{RowKind::kInterval, 1762257600.25, 7, {}};
    double next = 0.5;
    for (const MetricInfo& metric : metric_table()) {
        if (metric.scope == MetricScope::kMachine) sample.points.push_back({&metric, -1, next++});
        if (metric.scope == MetricScope::kGpu || metric.scope == MetricScope::kCore)
            for (int i = 0; i < 2; ++i) sample.points.push_back({&metric, i, next++});
        if (metric.scope == MetricScope::kTrain)
            for (int i = -1; i < 2; ++i) interval.points.push_back({&metric, i, next++});
    }
    return {sample, interval};
}

struct Outcome {
    int status = -1;
    std::string output;
};

/// Runs a shell command; stdout and stderr together.
inline Outcome run_command(const std::string& command) {
    Outcome outcome;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return outcome;
    char bytes[4096];
    for (std::size_t got = 0; (got = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;) outcome.output.append(bytes, got);
    const int status = ::pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

inline std::vector<std::string> lines_of(const io::Path& path) {
    const auto text = io::read_text(path);
    std::vector<std::string> lines;
    for (std::string_view rest = text.ok() ? *text : std::string_view{}; !rest.empty();) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        lines.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return lines;
}

}  // namespace millrace::record::test_rig
