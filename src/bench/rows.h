#pragma once
// What a benchmark prints: one row per workload, as a table for people and as JSON.

#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/peers.h"
#include "bench/row_recipe.h"

namespace millrace::bench {

struct Row {
    Workload workload;
    std::vector<std::string> settings;  ///< of the command line, over the workload's
    OurTimes ours;
    PeerTimes peers;
    std::optional<double> ceiling;  ///< FLOP per second of a large product in the same run (product_ceiling())

    [[nodiscard]] Timing timing() const { return timing_of(ours.windows); }
    [[nodiscard]] const PeerTime* fastest() const;
    /// The fastest peer's time over ours.
    [[nodiscard]] std::optional<double> ratio() const;
    /// FLOP per second when every row of every step was computed; absent when some were not.
    [[nodiscard]] std::optional<double> rate() const;
    /// FLOP per second of the flow-steps that the device counted.
    [[nodiscard]] std::optional<double> counted_rate() const;
};

/// A list of {"name", "device", "ours_ms", "peers": {name: ms}, "spread", ...}, one element per row.
std::string rows_json(const std::vector<Row>& rows);
/// One such element on a line of its own.
std::string row_line(const Row& row);
/// {"name", "settings", "error"} of a point that could not be timed.
std::string failure_line(const Point& point, const std::string& error);

std::string table_header(const Row& first);  ///< machine, ceiling, titles of the columns
std::string table_line(const Row& row);
/// A line for each of its kernels, where they were timed.
std::string kernel_lines(const Row& row);
std::string table_legend();

}  // namespace millrace::bench
