#include "metric_document.h"

#include <fmt/format.h>

#include "record/metric_table.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

constexpr std::string_view kIntroduction = R"(# Metrics

Everything Millrace measures. This file is written by `make docs` from the table in `src/record/metric_table.cpp`, from which every
output is built: change the table, not this file (a test compares the two).

- **key**: the name in JSON lines, CSV and TensorBoard. `N` is the number of a GPU (as CUDA numbers the visible ones) or of a core
  (its place among the cores the process may use). In TensorBoard, keys of training have the kind of their row before them
  (`interval/loss`, `epoch/train_loss`), except those that begin with `component/`.
- **unit**: in JSON lines, CSV and TensorBoard. Prometheus gets base units: percent become ratios, milliseconds seconds, megahertz
  hertz.
- **gauge**: a value at a moment or a mean over an interval. **counter**: only grows.

A value that could not be read is absent: left out in JSON lines, TensorBoard and Prometheus, empty in CSV, never 0. Rates and
shares of time are over the time since the sample before, so the first sample lacks them.

Rows of JSON lines begin with `kind` (`sample`, `interval`, `epoch`, `test`, `components`), `time` (seconds since 1970) and, in
training, `step` (optimizer steps done); these are no metrics. [run-format.md](run-format.md) describes the files of a run.
)";

struct Section {
    MetricScope scope;
    std::string_view title, text;
};
constexpr Section kSections[] = {
    {MetricScope::kMachine, "The machine", "Rows of kind `sample`."},
    {MetricScope::kCore, "Each core", "Rows of kind `sample`. Prometheus: label `core`, the system's number of the core."},
    {MetricScope::kGpu, "Each GPU", "Rows of kind `sample`. Prometheus: labels `gpu`, `uuid`, `name`."},
    {MetricScope::kTrain, "Training",
     "Rows of kind `interval`, `epoch`, `test` and `components`; means over all members. With several members each one's own\n"
     "value follows as `member_003/loss`; Prometheus: label `member`."},
};

std::string key_pattern(const MetricInfo& metric) {
    std::string key = key_of(metric, metric.scope == MetricScope::kTrain ? -1 : 0);
    const bool numbered = metric.scope == MetricScope::kGpu || metric.scope == MetricScope::kCore;
    if (numbered) key.replace(key.find('0'), 1, "N");
    return key;
}

}  // namespace

std::string metric_document() {
    std::string out(kIntroduction);
    for (const Section& section : kSections) {
        out += fmt::format("\n## {}\n{}\n\n| key | unit | kind | Prometheus | meaning |\n|---|---|---|---|---|\n", section.title,
                           section.text);
        for (const MetricInfo& metric : metric_table())
            if (metric.scope == section.scope)
                out += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", key_pattern(metric), metric.unit,
                                   metric.kind == MetricKind::kCounter ? "counter" : "gauge", prometheus_name(metric),
                                   metric.meaning);
    }
    return out;
}

}  // namespace millrace::record
