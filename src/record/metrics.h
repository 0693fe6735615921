#pragma once
// metrics.jsonl and events.jsonl: one flat JSON object per line. A key that was not measured is left out; a value that is not
// finite is null.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
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

/// events.jsonl: what happened to a run and when: {"time", "kind", "text", field: value, ...}. Facts in time: a resumed run adds
/// to them and never takes any back. docs/run-format.md lists the kinds. Thread safe. Each event is handed to the system at once,
/// so that a reader beside us and a crash find it whole.
class EventWriter {
public:
    /// Opens or creates the stream and goes on at its end. `clock` gives the time of each event.
    static base::Result<EventWriter> open(const io::Path& path, const base::Clock& clock = base::SteadyClock::shared());

    /// `kind` is a word for programs ("started", "checkpoint", "warning"), `text` is for people, cut at 16 KiB. `fields`
    /// are not named time, kind or text. Lines are in the order of their times.
    base::Status append(std::string_view kind, std::string_view text, std::initializer_list<Metric> fields = {});
    base::Status sync();

private:
    EventWriter(MetricsWriter stream, const base::Clock& clock)
        : stream_(std::move(stream)), clock_(&clock), mutex_(std::make_unique<std::mutex>()) {}

    MetricsWriter stream_;
    const base::Clock* clock_;
    std::unique_ptr<std::mutex> mutex_;  ///< guards the stream
};

/// Whether events.jsonl in the folder of a run holds an event of this kind; false where it cannot be read.
bool has_event(const io::Path& folder, std::string_view kind);

}  // namespace millrace::record
