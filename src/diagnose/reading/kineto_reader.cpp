#include "diagnose/reading/kineto_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostEntries = 1u << 20;

Time time_of(std::string_view number) { return std::clamp(integer_of(number).value_or(0), -kLatest, kLatest); }

std::uint32_t small_or_zero(std::string_view number) {
    const auto value = unsigned_of(number);
    return value && *value <= 0xffffffffu ? static_cast<std::uint32_t>(*value) : 0;
}

/// [begin, end, further numbers]; false when it is no list.
struct Row {
    Time begin = 0, end = 0;
    std::array<std::optional<double>, 3> more;
    std::size_t count = 0;  ///< of all
};

bool scan_row(JsonScanner& scanner, Row& row) {
    if (!scanner.enter_array()) return false;
    for (; scanner.next_element(); ++row.count) {
        const std::string_view number = scanner.number();
        if (row.count == 0) row.begin = time_of(number);
        if (row.count == 1) row.end = time_of(number);
        if (row.count >= 2 && row.count - 2 < row.more.size()) row.more[row.count - 2] = double_of(number);
    }
    row.end = std::max(row.begin, row.end);
    return !scanner.failed();
}

void scan_windows(JsonScanner& scanner, std::vector<Window>& windows) {
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        Row row;
        if (!scan_row(scanner, row) || windows.size() >= kMostEntries) continue;
        const double process = row.more[0].value_or(0);
        const bool known = process >= 0 && process <= 0xffffffffu;
        windows.push_back({row.begin, row.end, known ? static_cast<std::uint32_t>(process) : 0});
    }
    std::ranges::stable_sort(windows, {}, &Window::begin);
}

/// The third number of a block are its steps; of four the last is the wait for data, of five the last two are the call that was
/// counted and how many of it were a step.
void scan_blocks(JsonScanner& scanner, Timeline& timeline) {
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        Row row;
        if (!scan_row(scanner, row) || timeline.blocks.size() >= kMostEntries) continue;
        Block block{row.begin, row.end, row.more[0].value_or(0)};
        if (row.count == 4) block.loader_wait_ms = row.more[1];
        const double kind = row.more[1].value_or(-1), calls = row.more[2].value_or(0);
        if (row.count == 5 && kind >= 0 && kind <= static_cast<double>(CallKind::kAttribute) && calls > 0) {
            block.call = static_cast<CallKind>(kind);
            block.calls_per_step = calls;
        }
        if (block.steps >= 0) timeline.blocks.push_back(block);
    }
    std::ranges::stable_sort(timeline.blocks, {}, &Block::begin);
}

void scan_processes(JsonScanner& scanner, Timeline& timeline) {
    constexpr std::size_t kMost = 4096;
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        if (!scanner.enter_object()) continue;
        Process process;
        std::string_view key;
        while (scanner.next_key(key)) {
            if (key == "pid")
                process.pid = small_or_zero(scanner.number());
            else if (key == "parent")
                process.parent = small_or_zero(scanner.number());
            else if (key == "main_thread")
                process.main_thread = small_or_zero(scanner.number());
            else if (key == "command")
                process.command = clean_text(scanner.text());
            else if (key == "gpu") {
                process.has_gpu = scanner.peek() == JsonScanner::Kind::kTrue;
                scanner.skip();
            } else
                scanner.skip();
        }
        if (timeline.processes.size() < kMost) timeline.processes.push_back(std::move(process));
    }
}

/// As report/kineto_export.cpp writes it: all members in their order.
void scan_multiprocessors(JsonScanner& scanner, Multiprocessors& of) {
    if (!scanner.enter_array()) return;
    std::uint32_t* const members[] = {&of.count, &of.threads, &of.blocks, &of.shared_bytes, &of.reserved};
    for (std::size_t at = 0; scanner.next_element(); ++at) {
        const std::uint32_t value = small_or_zero(scanner.number());
        if (at < std::size(members)) *members[at] = value;
    }
}

void scan_remarks(JsonScanner& scanner, Timeline& timeline) {
    constexpr std::size_t kMost = 256;
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        std::string text = clean_text(scanner.text());
        if (!text.empty() && timeline.remarks.size() < kMost) timeline.remarks.push_back(std::move(text));
    }
}

/// Takes the value the scanner stands at into the timeline. What makes no sense in it, and sections of later versions, are passed
/// over.
OwnSection scan_own_section(JsonScanner& scanner, Timeline& timeline) {
    OwnSection section;
    if (!scanner.enter_object()) return section;
    section.present = true;
    std::string_view key;
    while (scanner.next_key(key)) {
        if (key == "source") {
            const std::string_view source = scanner.text();
            timeline.source = source == "recording"  ? Source::kRecording
                              : source == "training" ? Source::kTraining
                                                     : Source::kKineto;
        } else if (key == "origin")
            section.origin = time_of(scanner.number());
        else if (key == "title")
            timeline.title = clean_text(scanner.text());
        else if (key == "device")
            timeline.device_name = clean_text(scanner.text(), 256);
        else if (key == "link_bytes_per_second") {
            const auto speed = double_of(scanner.number());
            if (speed && *speed > 0) timeline.link_bytes_per_second = speed;
        } else if (key == "link_is_assumed") {
            timeline.link_is_assumed = scanner.peek() == JsonScanner::Kind::kTrue;
            scanner.skip();
        } else if (key == "counting_share") {
            timeline.counting_share = std::clamp(double_of(scanner.number()).value_or(0), 0.0, 1.0);
        } else if (key == "presence_share") {
            timeline.presence_share = std::clamp(double_of(scanner.number()).value_or(1), 0.0, 1.0);
        } else if (key == "processors")
            timeline.processors = small_or_zero(scanner.number());
        else if (key == "dropped")
            timeline.dropped = unsigned_of(scanner.number()).value_or(0);
        else if (key == "processes")
            scan_processes(scanner, timeline);
        else if (key == "multiprocessors")
            scan_multiprocessors(scanner, timeline.multiprocessors);
        else if (key == "run") {
            if (Row row; scan_row(scanner, row)) timeline.run = {row.begin, row.end, 0};
        } else if (key == "windows")
            scan_windows(scanner, timeline.windows);
        else if (key == "left_out")
            scan_windows(scanner, timeline.left_out);
        else if (key == "blocks")
            scan_blocks(scanner, timeline);
        else if (key == "remarks")
            scan_remarks(scanner, timeline);
        else
            scanner.skip();
    }
    return section;
}

unsigned version_of(std::string_view number) {
    return static_cast<unsigned>(std::min<std::uint64_t>(unsigned_of(number).value_or(0), 1000));
}

using base::Error;
using base::Result;

constexpr std::uint64_t kLatestBase = std::uint64_t{1} << 62;

class Reading {
public:
    Reading(JsonScanner& scanner, const KinetoLimits& limits) : scanner_(&scanner), collector_(limits) {}

    /// Everything up to the end or the first failure.
    void run() {
        const JsonScanner::Kind kind = scanner_->peek();
        if (kind == JsonScanner::Kind::kArray) {
            // Chrome's short form: the list of events alone, of which the end may be missing.
            has_events_ = true;
            scan_events();
        } else if (kind == JsonScanner::Kind::kObject) {
            scan_head();
        } else {
            return;
        }
        scanner_->at_end();
    }

    [[nodiscard]] bool has_events() const { return has_events_; }
    KinetoCollector& collector() { return collector_; }
    Timeline finish(const io::Path& place, const FindSources& sources) {
        std::string& title = collector_.timeline().title;
        if (!head_.present) title = clean_text(place.filename().string(), 1024);
        if (rank_ && ranks_) title += fmt::format(" (rank {} of {})", *rank_, *ranks_);
        return collector_.finish(head_, sources);
    }

private:
    void scan_events() {
        if (!scanner_->enter_array()) return;
        while (scanner_->next_element())
            if (scan_event(*scanner_, event_)) collector_.take(event_);
    }

    void scan_head() {
        scanner_->enter_object();
        std::string_view key;
        while (scanner_->next_key(key)) {
            if (key == "traceEvents") {
                has_events_ |= scanner_->peek() == JsonScanner::Kind::kArray;
                scan_events();
            } else if (key == "deviceProperties" || key == "computeProperties") {
                scan_devices();
            } else if (key == "baseTimeNanoseconds") {
                if (const auto time = unsigned_of(scanner_->number()); time && *time < kLatestBase)
                    collector_.base_time(static_cast<std::int64_t>(*time));
            } else if (key == "distributedInfo") {
                scan_ranks();
            } else if (key == "millrace") {
                head_ = scan_own_section(*scanner_, collector_.timeline());
            } else {
                scanner_->skip();
            }
        }
    }

    void scan_devices() {
        if (!scanner_->enter_array()) return;
        while (scanner_->next_element()) {
            if (!scanner_->enter_object()) continue;
            std::uint64_t id = 0;
            KinetoCollector::DeviceFacts facts;
            ComputeCapability capability;
            std::string_view key;
            while (scanner_->next_key(key)) {
                if (key == "id")
                    id = unsigned_of(scanner_->number()).value_or(0);
                else if (key == "name")
                    facts.name.assign(scanner_->text());
                else if (key == "totalGlobalMem")
                    facts.memory = double_of(scanner_->number());
                else if (key == "numSms")
                    facts.multiprocessors =
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(unsigned_of(scanner_->number()).value_or(0), 4096));
                else if (key == "computeMajor")
                    capability.major = version_of(scanner_->number());
                else if (key == "computeMinor")
                    capability.minor = version_of(scanner_->number());
                else
                    scanner_->skip();
            }
            if (capability.major > 0) facts.capability = capability;
            if (id < 0xffff) collector_.device(static_cast<std::uint32_t>(id), facts);
        }
    }

    void scan_ranks() {
        if (!scanner_->enter_object()) return;
        std::string_view key;
        while (scanner_->next_key(key)) {
            if (key == "rank")
                rank_ = unsigned_of(scanner_->number());
            else if (key == "world_size")
                ranks_ = unsigned_of(scanner_->number());
            else
                scanner_->skip();
        }
    }

    JsonScanner* scanner_;
    KinetoCollector collector_;
    KinetoEvent event_;
    OwnSection head_;
    bool has_events_ = false;
    std::optional<std::uint64_t> rank_, ranks_;
};

bool is_empty(const Timeline& timeline) {
    return timeline.calls.empty() && timeline.work.empty() && timeline.ranges.empty() && timeline.samples.empty() &&
           timeline.blocks.empty() && timeline.machine.empty();
}

}  // namespace

Result<Timeline> read_kineto(io::ByteSource& source, const io::Path& place, const ReadProgress& progress,
                             const KinetoLimits& limits, const FindSources& sources) {
    JsonScanner scanner(source, [&] {
        if (progress) progress(source.progress());
    });
    Reading reading(scanner, limits);
    reading.run();
    if (!scanner.source_problem().empty()) return Error{"cannot be read: " + scanner.source_problem(), place.string()};
    const std::uint64_t offset = scanner.offset();
    if (!reading.has_events()) {
        if (scanner.failed())
            return Error{fmt::format("is no trace of PyTorch's profiler: {} at byte {}", scanner.problem(), offset),
                         place.string()};
        return Error{"is no trace of PyTorch's profiler: it has no list traceEvents", place.string()};
    }
    if (scanner.failed() && !scanner.torn())
        return Error{fmt::format("is broken at byte {}: {}", offset, scanner.problem()), place.string()};
    const std::uint64_t events = reading.collector().events();
    if (scanner.torn()) {
        const std::string why = source.damage().empty() ? std::string("the file was cut") : std::string(source.damage());
        reading.collector().remark(
            fmt::format("the trace stops at byte {} ({}): what is said rests on the {} events before", offset, why, events));
    }
    Timeline timeline = reading.finish(place, sources);
    if (is_empty(timeline)) {
        const char* why = scanner.torn() ? "is cut before its first event of a GPU or of its calls"
                                         : "has no event of a GPU, of calls that start its work, or of marked ranges: was the "
                                           "profiler given ProfilerActivity.CUDA?";
        return Error{why, place.string(), 4};
    }
    if (progress) progress(1);
    return timeline;
}

Result<Timeline> read_kineto(const io::Path& path, const ReadProgress& progress, const KinetoLimits& limits) {
    MILLRACE_LET(source, io::open_source(path));
    return read_kineto(*source, path, progress, limits, sources_of(path));
}

}  // namespace millrace::diagnose
