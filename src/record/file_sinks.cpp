#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>
#include <unordered_map>
#include <variant>

#include "io/checksum.h"
#include "io/line_file.h"
#include "io/table_file.h"
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

// TensorBoard reads TFRecord files of Event messages. The few fields that scalars need are encoded by hand: the formats have not
// changed in ten years, while the libraries that write them are a hundred times the size of this program.
// Field numbers of the messages Event, Summary and Summary.Value.
constexpr int kEventTime = 1, kEventStep = 2, kEventVersion = 3, kEventSummary = 5;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
enum Wire : int { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Word>
void put_little_endian(std::string& out, Word word) {
    for (std::size_t i = 0; i < sizeof word; ++i) out += static_cast<char>(word >> (8 * i) & 0xff);
}

void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
    out += static_cast<char>(value);
}

void put_key(std::string& out, int field, Wire wire) { put_varint(out, static_cast<std::uint64_t>(field) << 3 | wire); }

void put_bytes(std::string& out, int field, std::string_view bytes) {
    put_key(out, field, kBytes);
    put_varint(out, bytes.size());
    out += bytes;
}

std::string event(double time, std::uint64_t step) {
    std::string out;
    put_key(out, kEventTime, kFixed64);
    put_little_endian(out, std::bit_cast<std::uint64_t>(time));
    put_key(out, kEventStep, kVarint);
    put_varint(out, step);
    return out;
}

std::string scalar(std::string_view tag, double number) {
    std::string out;
    put_bytes(out, kValueTag, tag);
    put_key(out, kValueSimple, kFixed32);
    put_little_endian(out, std::bit_cast<std::uint32_t>(static_cast<float>(number)));
    return out;
}

/// Length, its sum, content, its sum. Sums are masked because content that holds sums of itself weakens them.
std::string framed(std::string_view content) {
    const auto masked = [](std::string_view bytes) {
        const std::uint32_t sum = io::crc32c(bytes);
        return std::rotr(sum, 15) + 0xa282ead8u;
    };
    std::string out;
    put_little_endian(out, static_cast<std::uint64_t>(content.size()));
    put_little_endian(out, masked(out));
    out += content;
    put_little_endian(out, masked(content));
    return out;
}

std::string tag_of(RowKind kind, const Point& point) {
    const std::string key = key_of(*point.metric, point.index);
    const bool own_group = kind == RowKind::kSample || kind == RowKind::kComponents;
    return own_group ? key : fmt::format("{}/{}", name_of(kind), key);
}

class TensorBoardSink final : public Sink {
public:
    explicit TensorBoardSink(io::LineFile file) : file_(std::move(file)) {}

    [[nodiscard]] std::string name() const override { return "TensorBoard " + file_.path().string(); }

    base::Status write(const SinkRow& row) override {
        if (row.step) training_step_ = row.step;
        std::string summary;
        std::uint64_t step = training_step_.value_or(0);
        for (const Point& point : row.points) {
            put_bytes(summary, kSummaryValue, scalar(tag_of(row.kind, point), point.value));
            if (!training_step_ && point.metric == ticks_ && point.value >= 1) step = static_cast<std::uint64_t>(point.value) - 1;
        }
        if (summary.empty()) return base::ok();
        std::string message = event(row.time, step);
        put_bytes(message, kEventSummary, summary);
        return file_.write(framed(message));
    }

private:
    io::LineFile file_;
    const MetricInfo* ticks_ = find_metric("sampler/ticks");
    std::optional<std::uint64_t> training_step_;
};

std::string host_name() {
    utsname about{};
    std::string name = ::uname(&about) == 0 && about.nodename[0] != 0 ? about.nodename : "localhost";
    for (char& letter : name)
        if (letter == '/') letter = '_';
    return name;
}

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

base::Result<std::unique_ptr<Sink>> tensorboard_sink(const io::Path& folder) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return io::system_error("cannot create the folder for TensorBoard", folder, failure.value());
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::string stem = fmt::format("events.out.tfevents.{}.{}.{}", static_cast<std::int64_t>(now), host_name(), ::getpid());
    // A second sink of one process in one second must not replace the first.
    io::Path path = folder / stem;
    for (int attempt = 1; std::filesystem::exists(path, failure); ++attempt) path = folder / fmt::format("{}.{}", stem, attempt);
    MILLRACE_LET(file, io::LineFile::create(path));
    std::string start = event(now, 0);
    put_bytes(start, kEventVersion, "brain.Event:2");
    MILLRACE_TRY(file.write(framed(start)));
    return std::unique_ptr<Sink>(std::make_unique<TensorBoardSink>(std::move(file)));
}

}  // namespace millrace::record
