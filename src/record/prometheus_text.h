#pragma once
// The newest value of every metric in the text format that Prometheus scrapes. Base units, as its conventions ask: percent become
// ratios, milliseconds seconds, megahertz hertz.

#include <map>
#include <string>
#include <utility>

#include "record/sink.h"
#include "sense/machine.h"

namespace millrace::record {

/// "millrace_gpu_sm_active_ratio", "millrace_gpu_energy_joules_total", "millrace_train_step_p50_seconds".
std::string prometheus_name(const MetricInfo& metric);

/// Not synchronised.
class PrometheusBoard {
public:
    explicit PrometheusBoard(sense::MachineFacts facts) : facts_(std::move(facts)) {}

    /// A sample replaces everything the sample before said: what it lacks is gone, not stale. Training rows replace what they
    /// hold.
    void take(const SinkRow& row);
    [[nodiscard]] std::string text() const;

private:
    [[nodiscard]] std::string labels_of(const MetricInfo& metric, int index) const;

    sense::MachineFacts facts_;
    std::map<std::pair<const MetricInfo*, int>, double> values_;
};

}  // namespace millrace::record
