#include "diagnose/reading/machine_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/reading/name_table.h"
#include "sense/sample.h"

namespace millrace::diagnose {
namespace {

std::optional<double> finite(const record::MetricsRow& row, const std::string& key) {
    const auto value = row.number(key);
    return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> share(const record::MetricsRow& row, const std::string& key) {
    const auto percent = finite(row, key);
    return percent ? std::optional(*percent / 100) : std::nullopt;
}

bool is_sample(const record::MetricsRow& row) {
    const record::MetricValue* kind = row.find("kind");
    return kind != nullptr && *kind == record::MetricValue(std::string("sample"));
}

}  // namespace

std::span<const MachineSample> since_recorded(const Timeline& timeline) {
    const std::span<const MachineSample> all = timeline.machine;
    const auto first = std::ranges::min_element(timeline.windows, {}, &Window::begin);
    if (first == timeline.windows.end()) return all;
    return {std::ranges::lower_bound(all, first->begin, {}, &MachineSample::time), all.end()};
}

std::vector<MachineSample> machine_samples(const RunStream& stream, std::uint32_t gpu,
                                           const std::function<Time(double)>& time_of) {
    constexpr double kLatestSecond = 1e10;  // some 300 years of seconds since 1970
    std::vector<MachineSample> samples;
    for (const record::MetricsRow& row : stream.rows) {
        const auto time = finite(row, "time");
        if (!is_sample(row) || !time || std::abs(*time) > kLatestSecond) continue;
        const std::string prefix = fmt::format("gpu{}/", gpu);
        MachineSample sample;
        sample.time = time_of(*time);
        sample.gpu_utilization = share(row, prefix + "utilization_percent");
        sample.sm_active = share(row, prefix + "sm_active_percent");
        sample.tensor_active = share(row, prefix + "tensor_active_percent");
        sample.memory_used_bytes = finite(row, prefix + "memory_used_bytes");
        sample.memory_total_bytes = finite(row, prefix + "memory_total_bytes");
        sample.power_watts = finite(row, prefix + "power_watts");
        sample.power_limit_watts = finite(row, prefix + "power_limit_watts");
        sample.cpu_utilization = share(row, "cpu/utilization_percent");
        if (const auto bits = finite(row, prefix + "throttle_reasons"); bits && *bits >= 0 && *bits < 4294967296.0) {
            sample.throttled = *bits != 0;
            sample.throttle_reason = sense::throttle_text(static_cast<std::uint32_t>(*bits));
        }
        samples.push_back(std::move(sample));
    }
    return samples;
}

std::uint32_t processors_of(const RunStream& stream) {
    std::uint32_t most = 0;
    std::size_t looked_at = 0;
    for (const record::MetricsRow& row : stream.rows) {
        if (!is_sample(row)) continue;
        const auto cores = std::ranges::count_if(row.values, [](const record::Metric& metric) {
            const std::string& key = metric.first;
            return key.starts_with("cpu") && key.size() > 3 && key[3] >= '0' && key[3] <= '9' &&
                   key.ends_with("/utilization_percent");
        });
        most = std::max(most, static_cast<std::uint32_t>(cores));
        if (++looked_at == 16) break;
    }
    return most;
}

std::optional<double> link_speed_of(const RunStream& stream, std::uint32_t gpu) {
    const std::string key = fmt::format("gpu{}/link_bytes_per_second", gpu);
    std::optional<double> fastest;
    for (const record::MetricsRow& row : stream.rows)
        if (const auto speed = finite(row, key); speed && *speed > fastest.value_or(0)) fastest = speed;
    return fastest;
}

std::string device_name_of(const record::Manifest& manifest) {
    std::string_view name = manifest.device;
    if (name.starts_with("cpu")) return {};
    if (name.starts_with("cuda:")) name.remove_prefix(std::min(name.find(' '), name.size() - 1) + 1);
    return clean_text(name, 256);
}

std::string title_of(const record::Manifest& manifest) {
    std::string title;
    for (const std::string& word : manifest.command) title += (title.empty() ? "" : " ") + word;
    return clean_text(title, 1024);
}

void add_run_remarks(const RunContents& run, Timeline& timeline) {
    if (run.being_written) timeline.remarks.emplace_back("the run is going on: this is what it has written so far");
    if (run.was_killed()) timeline.remarks.emplace_back("the run was killed: what it had not yet written is missing");
    const std::uint64_t skipped = run.metrics.skipped + run.samples.skipped;
    if (skipped > 0)
        timeline.remarks.push_back(fmt::format("{} lines of the run could not be read and were passed over", skipped));
}

}  // namespace millrace::diagnose
