#include "record/events.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

namespace millrace::record {
namespace {

constexpr std::size_t kTextCap = std::size_t{16} << 10;  // readers pass over lines that are too long

}  // namespace

base::Result<EventWriter> EventWriter::open(const io::Path& path, const base::Clock& clock) {
    MILLRACE_LET(stream, MetricsWriter::open(path));
    return EventWriter(std::move(stream), clock);
}

base::Status EventWriter::append(std::string_view kind, std::string_view text, std::initializer_list<Metric> fields) {
    if (!stream_) return base::ok();
    const std::lock_guard lock(*mutex_);
    const double time = std::chrono::duration<double>(clock_->wall().time_since_epoch()).count();
    std::vector<Metric> row{
        {"time", std::round(time * 1000) / 1000}, {"kind", std::string(kind)}, {"text", std::string(text.substr(0, kTextCap))}};
    row.insert(row.end(), fields.begin(), fields.end());
    return stream_->append(row);
}

base::Status EventWriter::sync() {
    if (!stream_) return base::ok();
    const std::lock_guard lock(*mutex_);
    return stream_->sync();
}

bool has_event(const io::Path& folder, std::string_view kind) {
    const auto events = read_metrics(folder / "events.jsonl");
    return events.ok() && std::ranges::any_of(events->rows, [&](const MetricsRow& event) {
               const MetricValue* found = event.find("kind");
               return found != nullptr && *found == MetricValue(std::string(kind));
           });
}

}  // namespace millrace::record
