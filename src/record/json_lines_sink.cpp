#include <fmt/format.h>

#include <cmath>
#include <variant>

#include "io/line_file.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

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

base::Result<std::unique_ptr<Sink>> json_lines_sink(const io::Path& path, FileStart start) {
    if (start == FileStart::kAppend && path != "-") {
        MILLRACE_LET(stream, io::AppendStream::open(path));
        return std::unique_ptr<Sink>(std::make_unique<JsonLinesSink>(std::move(stream), path));
    }
    MILLRACE_LET(file, io::LineFile::create(path));
    return std::unique_ptr<Sink>(std::make_unique<JsonLinesSink>(std::move(file), path));
}

}  // namespace millrace::record
