#pragma once
// metrics.jsonl: one JSON object per line. A key that was not measured is left out; a value that is not finite is null.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/line_file.h"

namespace millrace::record {

using MetricValue = std::variant<std::int64_t, double, bool, std::string>;
using Metric = std::pair<std::string, MetricValue>;

/// A row in the order of its keys.
struct MetricsRow {
    std::vector<Metric> values;

    [[nodiscard]] const MetricValue* find(std::string_view key) const;
    /// The value as a number, integers included; null in the file is NaN here.
    [[nodiscard]] std::optional<double> number(std::string_view key) const;
};

/// A row as one line of JSON, without newline.
std::string row_text(std::span<const Metric> row);
/// The other way round; nothing for what is not one flat JSON object. Whole numbers beyond 64 bits become doubles.
std::optional<MetricsRow> parse_row(std::string_view line);

class MetricsWriter {
public:
    /// Opens or creates the stream and goes on at its end.
    static base::Result<MetricsWriter> open(const io::Path& path);

    /// Appends one row and hands it to the system, so that a reader beside us and a crash find it whole. A row that could not be
    /// written is kept and tried again with the next one (AppendStream).
    base::Status append(std::span<const Metric> row);
    base::Status append(std::initializer_list<Metric> row) { return append(std::span(row.begin(), row.size())); }

    [[nodiscard]] std::uint64_t offset() const { return stream_.offset(); }
    [[nodiscard]] std::uint64_t lost() const { return stream_.lost(); }
    base::Status truncate_to(std::uint64_t offset) { return stream_.truncate_to(offset); }
    base::Status sync() { return stream_.sync(); }

private:
    explicit MetricsWriter(io::AppendStream stream) : stream_(std::move(stream)) {}
    io::AppendStream stream_;
};

struct MetricsLog {
    std::vector<MetricsRow> rows;
    std::size_t skipped = 0;  ///< lines that are torn or not a flat JSON object
};

/// Reads what can be read: a torn last line and foreign lines are counted, not fatal. Fails only when the file cannot be read.
/// Keeps every row; diagnose::read_run is the reader for streams of any size.
base::Result<MetricsLog> read_metrics(const io::Path& path);

}  // namespace millrace::record
