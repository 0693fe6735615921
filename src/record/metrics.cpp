#include "record/metrics.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "io/line_file.h"

namespace millrace::record {
namespace {

void append_text(std::string& line, std::string_view text) { line += base::json_text(nlohmann::json(text)); }

void append_value(std::string& line, const MetricValue& value) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        fmt::format_to(std::back_inserter(line), "{}", *integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
        if (std::isfinite(*real))
            fmt::format_to(std::back_inserter(line), "{}", *real);
        else
            line += "null";
    } else if (const auto* flag = std::get_if<bool>(&value)) {
        line += *flag ? "true" : "false";
    } else {
        append_text(line, std::get<std::string>(value));
    }
}

/// Takes a flat object apart while it is parsed: nothing nested is ever built, however deep a hostile line goes.
class FlatRowHandler {
public:
    explicit FlatRowHandler(MetricsRow& row) : row_(row) {}

    bool null() { return add(std::numeric_limits<double>::quiet_NaN()); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(std::int64_t value) { return add(value); }
    bool number_unsigned(std::uint64_t value) {
        return std::in_range<std::int64_t>(value) ? add(static_cast<std::int64_t>(value)) : add(static_cast<double>(value));
    }
    bool number_float(double value, const std::string&) { return add(value); }
    bool string(std::string& value) { return add(std::move(value)); }
    bool binary(std::vector<std::uint8_t>&) { return false; }
    bool start_object(std::size_t) { return !std::exchange(opened_, true); }
    bool key(std::string& name) {
        key_ = std::move(name);
        return true;
    }
    bool end_object() { return true; }
    bool start_array(std::size_t) { return false; }
    bool end_array() { return false; }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) { return false; }

private:
    bool add(MetricValue value) {
        if (!opened_) return false;
        row_.values.emplace_back(std::move(key_), std::move(value));
        return true;
    }

    MetricsRow& row_;
    std::string key_;
    bool opened_ = false;
};

constexpr std::size_t kTextCap = std::size_t{16} << 10;  // readers pass over lines that are too long

}  // namespace

const MetricValue* MetricsRow::find(std::string_view key) const {
    for (const Metric& metric : values)
        if (metric.first == key) return &metric.second;
    return nullptr;
}

std::optional<double> MetricsRow::number(std::string_view key) const {
    const MetricValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
    if (const auto* real = std::get_if<double>(value)) return *real;
    return std::nullopt;
}

std::string row_text(std::span<const Metric> row) {
    std::string line = "{";
    for (const auto& [key, value] : row) {
        if (line.size() > 1) line += ", ";
        append_text(line, key);
        line += ": ";
        append_value(line, value);
    }
    return line + '}';
}

std::optional<MetricsRow> parse_row(std::string_view line) {
    MetricsRow row;
    FlatRowHandler handler(row);
    if (!nlohmann::json::sax_parse(line.begin(), line.end(), &handler)) return std::nullopt;
    return row;
}

base::Result<MetricsWriter> MetricsWriter::open(const io::Path& path) {
    MILLRACE_LET(stream, io::AppendStream::open(path));
    return MetricsWriter(std::move(stream));
}

base::Status MetricsWriter::append(std::span<const Metric> row) {
    MILLRACE_TRY(stream_.append_line(row_text(row)));
    return stream_.flush();
}

base::Result<MetricsLog> read_metrics(const io::Path& path) {
    MetricsLog log;
    const auto take = [&](std::string_view line) {
        if (auto row = parse_row(line))
            log.rows.push_back(std::move(*row));
        else
            ++log.skipped;
    };
    MILLRACE_LET(counts, io::read_lines(path, take));
    log.skipped += counts.too_long + (counts.torn ? 1 : 0);
    return log;
}

base::Result<EventWriter> EventWriter::open(const io::Path& path, const base::Clock& clock) {
    MILLRACE_LET(stream, MetricsWriter::open(path));
    return EventWriter(std::move(stream), clock);
}

base::Status EventWriter::append(std::string_view kind, std::string_view text, std::initializer_list<Metric> fields) {
    const std::lock_guard lock(*mutex_);
    const double time = std::chrono::duration<double>(clock_->wall().time_since_epoch()).count();
    std::vector<Metric> row{
        {"time", std::round(time * 1000) / 1000}, {"kind", std::string(kind)}, {"text", std::string(text.substr(0, kTextCap))}};
    row.insert(row.end(), fields.begin(), fields.end());
    return stream_.append(row);
}

base::Status EventWriter::sync() {
    const std::lock_guard lock(*mutex_);
    return stream_.sync();
}

bool has_event(const io::Path& folder, std::string_view kind) {
    const auto events = read_metrics(folder / "events.jsonl");
    return events.ok() && std::ranges::any_of(events->rows, [&](const MetricsRow& event) {
               const MetricValue* found = event.find("kind");
               return found != nullptr && *found == MetricValue(std::string(kind));
           });
}

}  // namespace millrace::record
