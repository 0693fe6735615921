#pragma once
// What every timeline must be, whatever it was read from; and that it survives being exported and read back.

#include <algorithm>
#include <cmath>
#include <string>

#include "diagnose/diagnose.h"
#include "diagnose/reading/kineto_event.h"
#include "diagnose/reading/kineto_reader.h"
#include "diagnose/reading/name_table.h"
#include "diagnose/reading/stack_builder.h"
#include "report/kineto_export.h"
#include "text_source.h"

namespace millrace::fuzz {

class TextSink : public io::ByteSink {
public:
    base::Status write(io::Bytes bytes) override {
        text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return base::ok();
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::string text_;
};

struct TimeBounds {
    diagnose::Time first = 0, last = 0, longest = 0;
    bool any = false;
    void cover(diagnose::Time begin, diagnose::Time end) {
        MILLRACE_ASSERT(begin <= end, "something ends before it begins");
        MILLRACE_ASSERT(begin >= -2 * diagnose::kLatest && end <= 2 * diagnose::kLatest + diagnose::kLongest,
                        "a time beyond all times");
        first = any ? std::min(first, begin) : begin;
        last = any ? std::max(last, end) : end;
        longest = std::max(longest, end - begin);
        any = true;
    }
};

inline void check_orders(const diagnose::Timeline& t) {
    using namespace diagnose;
    MILLRACE_ASSERT(std::ranges::is_sorted(t.calls, {}, &Call::begin), "calls are out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.work, {}, &Work::begin), "work is out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.ranges, {}, &Range::begin), "ranges are out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.samples, {}, &Sample::time), "samples are out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.machine, {}, &MachineSample::time), "samples of the machine are out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.windows, {}, &Window::begin), "windows are out of order");
    MILLRACE_ASSERT(std::ranges::is_sorted(t.blocks, {}, &Block::begin), "blocks are out of order");
    const auto key = [](const Arguments& a) { return std::pair(a.process, a.correlation); };
    MILLRACE_ASSERT(std::ranges::is_sorted(t.arguments, {}, key), "arguments are out of order");
}

inline TimeBounds check_timeline(const diagnose::Timeline& t) {
    MILLRACE_ASSERT(!t.names.empty() && t.names[0].empty(), "name 0 is not empty");
    MILLRACE_ASSERT(!t.stacks.empty() && t.stacks[0].empty(), "stack 0 is not empty");
    for (const std::string& name : t.names) MILLRACE_ASSERT(diagnose::clean_text(name) == name, "a name that cannot be shown");
    for (const diagnose::Stack& stack : t.stacks) {
        MILLRACE_ASSERT(stack.size() <= diagnose::kDeepestStack, "a stack without bound");
        for (const diagnose::Frame& frame : stack) MILLRACE_ASSERT(frame.line >= 0, "a line below zero");
    }
    check_orders(t);
    TimeBounds bounds;
    for (const auto& call : t.calls) {
        MILLRACE_ASSERT(call.name < t.names.size() && call.stack < t.stacks.size(), "a call refers to nothing");
        bounds.cover(call.begin, call.end);
    }
    for (const auto& work : t.work) {
        MILLRACE_ASSERT(work.name < t.names.size(), "work refers to nothing");
        bounds.cover(work.begin, work.end);
    }
    for (const auto* ranges : {&t.ranges, &t.collections, &t.profiler_work})
        for (const auto& range : *ranges) {
            MILLRACE_ASSERT(range.name < t.names.size(), "a range refers to nothing");
            bounds.cover(range.begin, range.end);
        }
    for (const auto& sample : t.samples) {
        MILLRACE_ASSERT(sample.wait < t.names.size() && sample.stack < t.stacks.size(), "a sample refers to nothing");
        bounds.cover(sample.time, sample.time);
    }
    for (const auto& sample : t.machine) bounds.cover(sample.time, sample.time);
    return bounds;
}

/// Rules say something sensible of any timeline.
inline void check_diagnosis(const diagnose::Timeline& timeline) {
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(timeline);
    MILLRACE_ASSERT(!(diagnosis.busy_share < 0) && !(diagnosis.busy_share > 1), "a share that is none");
    for (const double ms : diagnosis.breakdown_ms) MILLRACE_ASSERT(!(ms < 0) && !std::isinf(ms), "a time that is none");
    for (const diagnose::Finding& finding : diagnosis.findings) {
        MILLRACE_ASSERT(std::isfinite(finding.lost_ms_per_step) && finding.lost_ms_per_step >= 0, "a cost that is none");
        MILLRACE_ASSERT(finding.confidence >= 0 && finding.confidence <= 1, "a confidence that is none");
        MILLRACE_ASSERT(!finding.what.empty() && !finding.fix.empty(), "a finding without words");
    }
}

/// Only for timelines of possible length: times that cannot be are left out when a trace is read.
inline void check_round_trip(const diagnose::Timeline& t, const TimeBounds& bounds) {
    if (bounds.last - bounds.first > diagnose::kLatest / 2 || bounds.longest > diagnose::kLongest) return;
    if (bounds.first < -diagnose::kLatest || bounds.first > diagnose::kLatest) return;
    TextSink sink;
    const auto written = report::write_trace(t, {}, {}, sink);
    MILLRACE_ASSERT(written.ok() && written->left_out == 0, "a timeline cannot be exported");
    test::TextSource source(sink.text());
    const auto again = diagnose::read_kineto(source, "again.json");
    MILLRACE_ASSERT(again.ok(), "an export cannot be read: " + (again.ok() ? "" : again.error().text()) + "\n" + sink.text());
    check_timeline(*again);
    const auto same = [](const auto& a, const auto& b) {
        return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.begin == y.begin && x.end == y.end; });
    };
    MILLRACE_ASSERT(same(t.calls, again->calls), "calls changed on their way");
    MILLRACE_ASSERT(same(t.work, again->work), "work changed on its way");
    MILLRACE_ASSERT(same(t.ranges, again->ranges), "ranges changed on their way");
    MILLRACE_ASSERT(t.samples.size() == again->samples.size(), "samples changed on their way");
    MILLRACE_ASSERT(t.machine.size() == again->machine.size(), "samples of the machine changed on their way");
    MILLRACE_ASSERT(t.windows.size() == again->windows.size() || t.windows.empty(), "windows changed on their way");
    for (std::size_t i = 0; i < t.calls.size(); ++i) {
        const auto &a = t.calls[i], &b = again->calls[i];
        if (i > 0 && t.calls[i - 1].begin == a.begin) continue;
        if (i + 1 < t.calls.size() && t.calls[i + 1].begin == a.begin) continue;
        MILLRACE_ASSERT(a.kind == b.kind && a.correlation == b.correlation && a.process == b.process && a.thread == b.thread,
                        "a call became another");
    }
}

}  // namespace millrace::fuzz
