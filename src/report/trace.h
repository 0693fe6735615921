#pragma once
// A quantity over time in bounded memory, for plots: however long the watch, at most as many columns as a plot has pixels.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace millrace::report {

/// Columns of equal numbers of ticks. When they run out, neighbours are merged and a column covers twice the ticks.
class Trace {
public:
    static constexpr std::size_t kColumns = 800;

    struct Column {
        double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity(), sum = 0;
        std::uint64_t count = 0;  ///< values; 0 is a gap
        [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
        void merge(const Column& other);
    };

    /// `tick` is the number on the sampler's schedule, never smaller than one before. What is absent or not finite leaves a gap.
    void add(std::uint64_t tick, const std::optional<double>& value);

    [[nodiscard]] std::span<const Column> columns() const { return columns_; }
    /// Numbers of the columns that hold values, in stretches: more than `reach` from one to the next is a gap.
    [[nodiscard]] std::vector<std::vector<std::size_t>> stretches(std::size_t reach) const;
    [[nodiscard]] std::uint64_t ticks_per_column() const { return std::uint64_t{1} << shift_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }  ///< not one value
    [[nodiscard]] double high() const;                        ///< largest value; not for an empty trace
    [[nodiscard]] double mean() const;                        ///< of all values; not for an empty trace

private:
    void halve();

    std::vector<Column> columns_;
    unsigned shift_ = 0;
    std::uint64_t count_ = 0;
};

}  // namespace millrace::report
