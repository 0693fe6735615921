#include "record/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace millrace::record {
namespace {

constexpr std::size_t kLogCap = std::size_t{4} << 30;

void append_text(std::string& line, std::string_view text) {
    line += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

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

std::optional<MetricsRow> parse_row(std::string_view line) {
    const auto json = nlohmann::ordered_json::parse(line.begin(), line.end(), nullptr, false);
    if (!json.is_object()) return std::nullopt;
    MetricsRow row;
    for (const auto& [key, value] : json.items()) {
        if (value.is_boolean())
            row.values.emplace_back(key, value.get<bool>());
        else if (value.is_number_integer())
            row.values.emplace_back(key, value.get<std::int64_t>());
        else if (value.is_number())
            row.values.emplace_back(key, value.get<double>());
        else if (value.is_string())
            row.values.emplace_back(key, value.get<std::string>());
        else if (value.is_null())
            row.values.emplace_back(key, std::numeric_limits<double>::quiet_NaN());
        else
            return std::nullopt;
    }
    return row;
}

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

Result<MetricsWriter> MetricsWriter::open(const Path& path) {
    MILLRACE_LET(stream, AppendStream::open(path));
    return MetricsWriter(std::move(stream));
}

Status MetricsWriter::append(std::span<const Metric> row) {
    line_.clear();
    line_ += '{';
    for (const auto& [key, value] : row) {
        if (line_.size() > 1) line_ += ", ";
        append_text(line_, key);
        line_ += ": ";
        append_value(line_, value);
    }
    line_ += '}';
    MILLRACE_TRY(stream_.append_line(line_));
    return stream_.flush();
}

Result<MetricsLog> read_metrics(const Path& path) {
    MILLRACE_LET(text, read_text(path, kLogCap));
    MetricsLog log;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t end = rest.find('\n');
        // Without its newline a line may be half of what was meant, even when it happens to parse.
        auto row = end == std::string_view::npos ? std::nullopt : parse_row(rest.substr(0, end));
        if (row)
            log.rows.push_back(std::move(*row));
        else
            ++log.skipped;
        rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
    return log;
}

}  // namespace millrace::record
