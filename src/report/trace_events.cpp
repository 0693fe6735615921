#include "report/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "diagnose/reading/name_table.h"

namespace millrace::report {
namespace {

using diagnose::Time;

constexpr std::uint64_t kBesideRows = 1'000'000'000;  ///< streams have small numbers
constexpr std::size_t kMostBeside = 64;

std::uint64_t key_of(std::uint32_t process, std::uint32_t correlation) { return std::uint64_t{process} << 32 | correlation; }

}  // namespace

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char letter : diagnose::clean_text(text, std::size_t{1} << 16)) {
        if (letter == '"' || letter == '\\') out += '\\';
        out += letter;
    }
    return out + '"';
}

base::Status TraceEvents::raw(std::string_view text) {
    bytes_ += text.size();
    return sink_->write(io::bytes_of(text));
}

TraceEvents& TraceEvents::begin(char phase, std::string_view category, std::string_view name, std::uint64_t pid,
                                std::uint64_t tid) {
    event_ = events_ == 0 ? "\n" : ",\n";
    arguments_.clear();
    fmt::format_to(std::back_inserter(event_), R"({{"ph":"{}",)", phase);
    if (!category.empty()) fmt::format_to(std::back_inserter(event_), R"("cat":"{}",)", category);
    fmt::format_to(std::back_inserter(event_), R"("name":{},"pid":{},"tid":{})", json_text(name), pid, tid);
    return *this;
}

TraceEvents& TraceEvents::at(diagnose::Time time) {
    const diagnose::Time relative = time - origin_;
    fmt::format_to(std::back_inserter(event_), R"(,"ts":{}.{:03})", relative / 1000, relative % 1000);
    return *this;
}

TraceEvents& TraceEvents::lasts(diagnose::Time duration) {
    fmt::format_to(std::back_inserter(event_), R"(,"dur":{}.{:03})", duration / 1000, duration % 1000);
    return *this;
}

TraceEvents& TraceEvents::field(std::string_view json) {
    event_ += ',';
    event_ += json;
    return *this;
}

TraceEvents& TraceEvents::argument(std::string_view name, std::string_view json) {
    fmt::format_to(std::back_inserter(arguments_), R"({}"{}":{})", arguments_.empty() ? "" : ",", name, json);
    return *this;
}

base::Status TraceEvents::end() {
    if (!arguments_.empty()) fmt::format_to(std::back_inserter(event_), R"(,"args":{{{}}})", arguments_);
    event_ += '}';
    if (left_out_ > 0 || bytes_ + event_.size() > cap_) {
        ++left_out_;
        return base::ok();
    }
    ++events_;
    return raw(event_);
}

ExportRows::ExportRows(const diagnose::Timeline& timeline) {
    for (const diagnose::Call& call : timeline.calls) host_.emplace(call.process, call.thread);
    for (const diagnose::Range& range : timeline.ranges) host_.emplace(range.process, range.thread);
    for (const diagnose::Range& range : timeline.collections) host_.emplace(range.process, range.thread);
    for (const diagnose::Sample& sample : timeline.samples) host_.emplace(sample.process, sample.thread);
    std::set<std::uint32_t> processes;
    for (const auto& [process, thread] : host_) processes.insert(process);
    for (const diagnose::Work& work : timeline.work) processes.insert(work.process);
    several_ = processes.size() > 1;
    place_work(timeline);
    join(timeline);
}

/// Viewers want what shares a row to nest. Nodes of a graph run side by side on one stream, so they get rows beside it.
void ExportRows::place_work(const diagnose::Timeline& timeline) {
    std::map<std::tuple<std::uint32_t, std::uint16_t, std::uint32_t>, std::vector<Time>> ends;  // by stream: of each of its rows
    std::map<std::uint32_t, std::uint64_t> process_number;
    rows_.reserve(timeline.work.size());
    for (const diagnose::Work& work : timeline.work) {
        std::vector<Time>& rows = ends[{work.process, work.device, work.stream}];
        auto row = std::ranges::find_if(rows, [&](Time end) { return end <= work.begin; });
        if (row == rows.end() && rows.size() == kMostBeside) --row;
        if (row == rows.end()) row = rows.insert(rows.end(), work.end);
        *row = std::max(*row, work.end);
        const std::uint64_t process = process_number.emplace(work.process, process_number.size()).first->second;
        const auto beside = static_cast<std::uint64_t>(row - rows.begin());
        const bool plain = beside == 0 && process == 0;
        rows_.push_back(plain ? work.stream : kBesideRows + (process * kMostBeside + beside) * 100'000 + work.stream % 100'000);
        devices_.insert(work.device);
        names_.emplace(std::pair(work.device, rows_.back()), beside == 0
                                                                 ? fmt::format("stream {}", work.stream)
                                                                 : fmt::format("stream {} ({})", work.stream, beside + 1));
    }
}

void ExportRows::join(const diagnose::Timeline& timeline) {
    std::vector<std::uint64_t> calls, work;
    for (const diagnose::Call& call : timeline.calls)
        if (call.correlation != 0) calls.push_back(key_of(call.process, call.correlation));
    for (const diagnose::Work& one : timeline.work)
        if (one.correlation != 0) work.push_back(key_of(one.process, one.correlation));
    std::ranges::sort(calls);
    std::ranges::sort(work);
    std::ranges::set_intersection(calls, work, std::back_inserter(joined_));
}

bool ExportRows::joined(std::uint32_t process, std::uint32_t correlation) const {
    return correlation != 0 && std::ranges::binary_search(joined_, key_of(process, correlation));
}

}  // namespace millrace::report
