#include "record/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace millrace::record {
namespace {

/// Of sorted values, at least one.
double interpolated(const std::vector<double>& sorted, double q) {
    const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    if (below + 1 == sorted.size()) return sorted.back();
    return std::lerp(sorted[below], sorted[below + 1], position - static_cast<double>(below));
}

}  // namespace

void Series::add(double value) {
    if (!std::isfinite(value)) return;
    minimum_ = count_ == 0 ? value : std::min(minimum_, value);
    maximum_ = count_ == 0 ? value : std::max(maximum_, value);
    sum_ += value;
    if (count_ % stride_ == 0) {
        values_.push_back(value);
        if (values_.size() > std::max<std::size_t>(kept_, 1)) {
            for (std::size_t i = 0; 2 * i < values_.size(); ++i) values_[i] = values_[2 * i];
            values_.resize((values_.size() + 1) / 2);
            stride_ *= 2;
        }
    }
    ++count_;
}

Statistics Series::statistics() const {
    if (empty()) return {};
    std::vector<double> sorted = values_;
    std::ranges::sort(sorted);
    return {count_,
            sum_ / static_cast<double>(count_),
            interpolated(sorted, 0.5),
            interpolated(sorted, 0.05),
            interpolated(sorted, 0.95),
            minimum_,
            maximum_};
}

double Series::quantile(double q) const {
    MILLRACE_ASSERT(!empty(), "a quantile of nothing");
    std::vector<double> sorted = values_;
    std::ranges::sort(sorted);
    return interpolated(sorted, q);
}

void SampleSummary::add(const sense::Sample& sample) {
    if (samples_++ == 0) first_ = sample.time;
    last_ = sample.time;
    for (const Point& point : points_of(sample))
        if (point.metric->kind == MetricKind::kGauge) series_[{point.metric, point.index}].add(point.value);
    if (gpus_.size() < sample.gpus.size()) gpus_.resize(sample.gpus.size());
    for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
        const sense::GpuReading& reading = sample.gpus[i];
        GpuTotals& totals = gpus_[i];
        if (reading.energy_joules) {
            if (totals.energy_readings++ > 0) totals.used_joules += std::max(0.0, *reading.energy_joules - totals.last_joules);
            totals.last_joules = *reading.energy_joules;
        }
        if (reading.power_implausible) ++totals.implausible;
        if (reading.throttle) {
            ++totals.throttle_known;
            if (*reading.throttle != 0) ++totals.throttle_set;
            totals.throttle |= *reading.throttle;
        }
    }
}

double SampleSummary::seconds() const { return std::chrono::duration<double>(last_ - first_).count(); }

std::vector<SampleSummary::Entry> SampleSummary::entries() const {
    std::vector<Entry> entries;
    // Keys are pointers into one table: their order is the table's.
    for (const auto& [key, series] : series_)
        if (!series.empty()) entries.push_back({key.first, key.second, series.statistics()});
    return entries;
}

std::optional<Statistics> SampleSummary::of(std::string_view metric, int index) const {
    const auto found = series_.find({find_metric(metric), index});
    if (found == series_.end() || found->second.empty()) return std::nullopt;
    return found->second.statistics();
}

SampleSummary::GpuTotals SampleSummary::totals(int gpu) const {
    const auto at = static_cast<std::size_t>(gpu);
    return gpu < 0 || at >= gpus_.size() ? GpuTotals{} : gpus_[at];
}

std::optional<double> SampleSummary::joules(int gpu) const {
    const GpuTotals of = totals(gpu);
    return of.energy_readings < 2 ? std::nullopt : std::optional(of.used_joules);
}

double SampleSummary::throttled_share(int gpu) const {
    const GpuTotals of = totals(gpu);
    return of.throttle_known == 0 ? 0 : static_cast<double>(of.throttle_set) / static_cast<double>(of.throttle_known);
}

}  // namespace millrace::record
