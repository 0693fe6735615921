#include "diagnose/reading/kineto_reader.h"

#include <fmt/format.h>

namespace millrace::diagnose {

namespace {

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
