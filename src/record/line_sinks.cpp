#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <unordered_map>
#include <variant>

#include "io/append_stream.h"
#include "io/csv.h"
#include "io/line_file.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

using io::csv_field;

class CsvSink final : public Sink {
public:
    CsvSink(io::LineFile file, std::unordered_map<std::string, std::size_t> columns)
        : file_(std::move(file)), columns_(std::move(columns)), fields_(columns_.size()) {}

    [[nodiscard]] std::string name() const override { return "CSV " + file_.path().string(); }

    base::Status write(const SinkRow& row) override {
        if (row.kind != RowKind::kSample) return base::ok();
        for (std::string& field : fields_) field.clear();
        for (const Point& point : row.points)
            if (const auto column = columns_.find(key_of(*point.metric, point.index));
                column != columns_.end() && std::isfinite(point.value))
                fields_[column->second] = fmt::format("{}", point.value);
        return file_.write(fmt::format("{:.3f},{}\n", row.time, fmt::join(fields_, ",")));
    }

private:
    io::LineFile file_;
    std::unordered_map<std::string, std::size_t> columns_;
    std::vector<std::string> fields_;
};

constexpr std::string_view kMonitorHeader =
    "timestamp,gpu_index,gpu_name,utilization_gpu_%,memory_used_mb,memory_total_mb,memory_usage_%,power_draw_w,power_limit_w,"
    "power_usage_%,temperature_c\n";

using Value = std::optional<double>;

Value either(Value first, Value second) { return first ? first : second; }
Value percent_of(Value part, Value whole) { return part && whole && *whole > 0 ? Value(100 * *part / *whole) : std::nullopt; }
Value mebibytes(Value bytes) { return bytes ? Value(*bytes / (1 << 20)) : std::nullopt; }
std::string text_of(Value value, int decimals) {
    return value && std::isfinite(*value) ? fmt::format("{:.{}f}", *value, decimals) : std::string{};
}

std::string local_time(double seconds) {
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(std::floor(seconds))));
}

class MonitorCsvSink final : public Sink {
public:
    MonitorCsvSink(io::LineFile file, std::vector<sense::GpuFacts> gpus) : file_(std::move(file)), gpus_(std::move(gpus)) {}

    [[nodiscard]] std::string name() const override { return "monitor CSV " + file_.path().string(); }

    base::Status write(const SinkRow& row) override {
        if (row.kind != RowKind::kSample) return base::ok();
        const std::string time = local_time(row.time);
        if (gpus_.empty()) return file_.write(time + ",,,,,,,,,,\n");
        std::string lines;
        for (std::size_t i = 0; i < gpus_.size(); ++i) lines += line_of(row, i, time);
        return file_.write(lines);
    }

private:
    [[nodiscard]] std::string line_of(const SinkRow& row, std::size_t gpu, const std::string& time) const {
        const auto value = [&](std::string_view name) -> Value {
            const MetricInfo* metric = find_metric(name);
            for (const Point& point : row.points)
                if (point.metric == metric && point.index == static_cast<int>(gpu)) return point.value;
            return std::nullopt;
        };
        const sense::GpuFacts& facts = gpus_[gpu];
        const Value used = value("gpu/memory_used_bytes");
        const Value total = either(value("gpu/memory_total_bytes"), facts.memory_total_bytes);
        const Value power = value("gpu/power_watts");
        const Value limit = either(value("gpu/power_limit_watts"), facts.power_limit_watts);
        return fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", time, facts.index, csv_field(facts.name),
                           text_of(value("gpu/utilization_percent"), 1), text_of(mebibytes(used), 0),
                           text_of(mebibytes(total), 0), text_of(percent_of(used, total), 1), text_of(power, 1),
                           text_of(limit, 1), text_of(percent_of(power, limit), 1), text_of(value("gpu/temperature_celsius"), 0));
    }

    io::LineFile file_;
    std::vector<sense::GpuFacts> gpus_;
};

/// Keys come from the table and hold nothing that JSON would escape.
std::string line_of(const SinkRow& row) {
    std::string line = fmt::format(R"({{"kind": "{}", "time": {:.3f})", name_of(row.kind), row.time);
    if (row.step) line += fmt::format(R"(, "step": {})", *row.step);
    for (const Point& point : row.points) {
        line += fmt::format(R"(, "{}": )", key_of(*point.metric, point.index));
        line += std::isfinite(point.value) ? fmt::format("{}", point.value) : "null";
    }
    return line + '}';
}

class JsonLinesSink final : public Sink {
public:
    JsonLinesSink(std::variant<io::LineFile, io::AppendStream> out, io::Path path)
        : out_(std::move(out)), path_(std::move(path)) {}

    [[nodiscard]] std::string name() const override {
        return "JSON lines " + (path_ == "-" ? "on standard output" : path_.string());
    }

    base::Status write(const SinkRow& row) override {
        if (auto* file = std::get_if<io::LineFile>(&out_)) return file->write(line_of(row) + '\n');
        auto& stream = std::get<io::AppendStream>(out_);
        MILLRACE_TRY(stream.append_line(line_of(row)));
        return stream.flush();
    }

private:
    std::variant<io::LineFile, io::AppendStream> out_;
    io::Path path_;
};

}  // namespace

base::Result<std::unique_ptr<Sink>> csv_sink(const io::Path& path, const sense::MachineFacts& facts) {
    MILLRACE_LET(file, io::LineFile::create(path));
    std::unordered_map<std::string, std::size_t> columns;
    std::string header = "time";
    const auto add = [&](const MetricInfo& metric, int index) {
        const std::string key = key_of(metric, index);
        columns.emplace(key, columns.size());
        header += "," + csv_field(key);
    };
    for (const MetricInfo& metric : metric_table()) {
        const std::size_t count = metric.scope == MetricScope::kGpu    ? std::max<std::size_t>(facts.gpus.size(), 1)
                                  : metric.scope == MetricScope::kCore ? facts.core_numbers.size()
                                                                       : 0;
        if (metric.scope == MetricScope::kMachine) add(metric, -1);
        for (std::size_t i = 0; i < count; ++i) add(metric, static_cast<int>(i));
    }
    MILLRACE_TRY(file.write(header + "\n"));
    return std::unique_ptr<Sink>(std::make_unique<CsvSink>(std::move(file), std::move(columns)));
}

base::Result<std::unique_ptr<Sink>> monitor_csv_sink(const io::Path& path, const sense::MachineFacts& facts) {
    MILLRACE_LET(file, io::LineFile::create(path));
    MILLRACE_TRY(file.write(kMonitorHeader));
    return std::unique_ptr<Sink>(std::make_unique<MonitorCsvSink>(std::move(file), facts.gpus));
}

base::Result<std::unique_ptr<Sink>> json_lines_sink(const io::Path& path) {
    if (path != "-") {
        MILLRACE_LET(stream, io::AppendStream::open(path));
        return std::unique_ptr<Sink>(std::make_unique<JsonLinesSink>(std::move(stream), path));
    }
    MILLRACE_LET(file, io::LineFile::create(path));
    return std::unique_ptr<Sink>(std::make_unique<JsonLinesSink>(std::move(file), path));
}

}  // namespace millrace::record
