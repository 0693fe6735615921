#pragma once
// The one table of everything that is measured: every sink, every column, every line of docs/metrics.md comes from it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sense/sample.h"

namespace millrace::record {

enum class MetricKind : std::uint8_t {
    kGauge,    ///< a value at a moment or a mean over an interval
    kCounter,  ///< only grows while the process lives
};

/// What a metric belongs to, and so what its index counts.
enum class MetricScope : std::uint8_t {
    kMachine,  ///< no index
    kCore,     ///< index: position among the cores this process may use (MachineFacts::core_numbers has the system's numbers)
    kGpu,      ///< index: GPU as CUDA numbers the visible ones
    kTrain,    ///< rows of metrics.jsonl; index: member when K > 1, else none
};

struct MetricInfo {
    std::string_view name;  ///< unique; key in JSON and CSV without index: "gpu/sm_active_percent", "loss"
    std::string_view unit;  ///< "percent", "bytes", "watts", "joules", "seconds", "milliseconds", ... "" for plain numbers
    MetricKind kind = MetricKind::kGauge;
    MetricScope scope = MetricScope::kMachine;
    std::string_view meaning;  ///< for people
};

/// In the order of columns; those added come last.
std::span<const MetricInfo> metric_table();
/// Metrics that a model family brings along; before any is looked for. What they name lives as long as the process.
void add_metrics(std::span<const MetricInfo> metrics);
const MetricInfo* find_metric(std::string_view name);  ///< by its name without index; null when there is none

/// One measured value. Absent values have no point.
struct Point {
    const MetricInfo* metric = nullptr;
    int index = -1;  ///< GPU, core or member; -1 none
    double value = 0;
};

/// Key in files: "gpu0/sm_active_percent", "cpu3/utilization_percent" (of core/utilization_percent), "member_002/loss", "loss".
std::string key_of(const MetricInfo& metric, int index);
/// The other way round: metric and index (-1 none) of a key, nothing for keys that key_of never makes.
std::optional<std::pair<const MetricInfo*, int>> metric_of_key(std::string_view key);

/// What a sample holds, in the table's order: nothing for what is absent.
std::vector<Point> points_of(const sense::Sample& sample);

}  // namespace millrace::record
