#pragma once
// What a quantity did over a stretch of time.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "record/metric_table.h"
#include "sense/sample.h"

namespace millrace::record {

struct Statistics {
    std::uint64_t count = 0;
    double mean = 0, median = 0, p5 = 0, p95 = 0, minimum = 0, maximum = 0;
};

/// Collects values; those that are not finite are passed over. Bounded memory: beyond `kept` values every second one is let go
/// for the quantiles, while count, mean and extremes stay exact.
class Series {
public:
    explicit Series(std::size_t kept = 1u << 16) : kept_(kept) {}
    void add(double value);
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] Statistics statistics() const;
    /// Quantile in [0, 1] by linear interpolation. Not for an empty series.
    [[nodiscard]] double quantile(double q) const;

private:
    std::size_t kept_;
    std::uint64_t stride_ = 1;  ///< every stride_th value is kept
    std::uint64_t count_ = 0;
    double sum_ = 0, minimum_ = 0, maximum_ = 0;
    std::vector<double> values_;
};

/// A series per gauge and index of the samples it was given (a mean of a counter says nothing), and the energy used between the
/// first and the last.
class SampleSummary {
public:
    void add(const sense::Sample& sample);
    void clear() { *this = SampleSummary{}; }
    [[nodiscard]] std::uint64_t samples() const { return samples_; }
    [[nodiscard]] double seconds() const;  ///< from the first to the last sample

    struct Entry {
        const MetricInfo* metric;
        int index;
        Statistics statistics;
    };
    /// In the table's order; only what was read at least once.
    [[nodiscard]] std::vector<Entry> entries() const;
    [[nodiscard]] std::optional<Statistics> of(std::string_view metric, int index = -1) const;
    /// By the GPU's counter; absent when it was not read at least twice. A counter that started again (driver reloaded) goes on.
    [[nodiscard]] std::optional<double> joules(int gpu) const;
    [[nodiscard]] std::uint64_t implausible_power(int gpu) const { return totals(gpu).implausible; }  ///< readings marked
    [[nodiscard]] std::uint32_t throttled(int gpu) const { return totals(gpu).throttle; }             ///< all throttle bits seen
    [[nodiscard]] double throttled_share(int gpu) const;  ///< of samples with the bits

private:
    struct GpuTotals {
        std::uint64_t energy_readings = 0;
        double last_joules = 0, used_joules = 0;
        std::uint64_t implausible = 0, throttle_known = 0, throttle_set = 0;
        std::uint32_t throttle = 0;
    };
    [[nodiscard]] GpuTotals totals(int gpu) const;  ///< empty for a GPU that was never read

    std::uint64_t samples_ = 0;
    std::chrono::nanoseconds first_{}, last_{};
    std::map<std::pair<const MetricInfo*, int>, Series> series_;
    std::vector<GpuTotals> gpus_;
};

}  // namespace millrace::record
