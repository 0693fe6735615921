// TensorBoard reads TFRecord files of Event messages. The few fields that scalars need are encoded by hand: the formats have not
// changed in ten years, while the libraries that write them are a hundred times the size of this program.

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <chrono>

#include "io/checksum.h"
#include "io/line_file.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

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
