// What KinetoCollector does once all events were seen.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "diagnose/reading/call_index.h"
#include "diagnose/reading/kineto_collector.h"

namespace millrace::diagnose {
constexpr std::size_t kMostProcesses = 4096;

/// A call of the runtime that goes on to the driver is two events with one correlation; the outer one is the program's.
void KinetoCollector::drop_inner_calls() {
    std::vector<Call>& calls = timeline_.calls;
    std::vector<std::uint32_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        const Call &x = calls[a], &y = calls[b];
        return std::tuple(x.correlation, x.process, x.thread, x.begin, -x.end, a) <
               std::tuple(y.correlation, y.process, y.thread, y.begin, -y.end, b);
    });
    std::vector<bool> inner(calls.size());
    bool any = false;
    for (std::size_t i = 1, outer = 0; i < order.size(); ++i) {
        const Call &a = calls[order[outer]], &b = calls[order[i]];
        const bool same = a.correlation != 0 && a.correlation == b.correlation && a.process == b.process && a.thread == b.thread;
        if (same && a.begin <= b.begin && b.end <= a.end)
            any = inner[order[i]] = true;
        else
            outer = i;
    }
    if (!any) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < calls.size(); ++i)
        if (!inner[i]) calls[kept++] = calls[i];
    calls.resize(kept);
}

void KinetoCollector::join() {
    const CallIndex index(timeline_.calls);
    std::map<std::uint32_t, std::size_t> calls_of_process;
    for (const Call& call : timeline_.calls)
        if (calls_of_process.size() < kMostProcesses || calls_of_process.contains(call.process)) ++calls_of_process[call.process];
    const auto busiest = std::ranges::max_element(calls_of_process, {}, [](const auto& entry) { return entry.second; });
    const std::uint32_t main_process = busiest != calls_of_process.end() ? busiest->first : 0;
    for (std::size_t i = 0; i < timeline_.work.size(); ++i) {
        Work& work = timeline_.work[i];
        work.process = i < process_of_work_.size() ? process_of_work_[i] : 0;
        const auto found = index.find(work.correlation, work.process);
        if (found) work.process = timeline_.calls[*found].process;
        if (work.process == 0) work.process = main_process;
    }
    complete_calls(timeline_, index);
    for (Sync& sync : syncs_) sync.process = main_process;
    join_syncs(index);
}

/// Synchronisations seen by the device: they say which stream and event the call of the same correlation waited for.
void KinetoCollector::join_syncs(const CallIndex& index) {
    for (const Sync& sync : syncs_) {
        if (const auto recorder = index.find(sync.recorded_by, 0);
            recorder && timeline_.calls[*recorder].kind == CallKind::kEventRecord)
            timeline_.calls[*recorder].event = sync.event;
        if (const auto found = index.find(sync.correlation, 0)) {
            Call& call = timeline_.calls[*found];
            if (call.stream == 0) call.stream = sync.stream;
            if (call.event == 0) call.event = sync.event;
            continue;
        }
        const std::string& name = names_.text(sync.name);
        Call call;
        call.kind = name.starts_with("Stream Sync")                                       ? CallKind::kStreamSync
                    : name.starts_with("Event Sync")                                      ? CallKind::kEventSync
                    : name.starts_with("Context Sync") || name.starts_with("Device Sync") ? CallKind::kDeviceSync
                                                                                          : CallKind::kOther;
        if (call.kind == CallKind::kOther) continue;  // "Stream Wait Event": the host does not wait
        call.begin = sync.begin;
        call.end = sync.end;
        call.process = sync.process;
        call.name = sync.name;
        call.stream = sync.stream;
        call.event = sync.event;
        timeline_.calls.push_back(call);
    }
    syncs_.clear();
    syncs_.shrink_to_fit();
}

void KinetoCollector::name_processes() {
    std::set<std::uint32_t> processes;
    const auto add = [&](const auto& items) {
        for (const auto& item : items)
            if (processes.size() < kMostProcesses) processes.insert(item.process);
    };
    add(timeline_.calls);
    add(timeline_.work);
    add(timeline_.ranges);
    for (const std::uint32_t pid : processes) {
        Process process;
        process.pid = pid;
        if (const auto name = process_names_.find(pid); name != process_names_.end()) process.command = name->second;
        timeline_.processes.push_back(std::move(process));
    }
    find_main_threads(timeline_);
}

/// By the device that worked most.
void KinetoCollector::describe_device(bool own) {
    const auto used = std::ranges::max_element(devices_, {}, [](const auto& entry) { return entry.second.work; });
    if (used == devices_.end()) return;
    const DeviceFacts& facts = used->second.facts;
    if (timeline_.device_name.empty()) timeline_.device_name = facts.name;
    for (MachineSample& sample : timeline_.machine)
        if (!sample.memory_total_bytes) sample.memory_total_bytes = facts.memory;
    if (own) return;
    assume_link(timeline_, facts.capability);
    describe_multiprocessors(timeline_, facts.capability, facts.multiprocessors);
}

void KinetoCollector::add_window() {
    Window window;
    window.begin = kLatest;
    window.end = -kLatest;
    const auto cover = [&](const auto& items) {
        for (const auto& item : items) {
            window.begin = std::min(window.begin, item.begin);
            window.end = std::max(window.end, item.end);
        }
    };
    cover(timeline_.calls);
    cover(timeline_.work);
    if (window.begin > window.end) return;
    if (!timeline_.calls.empty()) window.process = timeline_.calls.front().process;
    timeline_.windows.push_back(window);
}

void KinetoCollector::shift(Time origin) {
    if (origin == 0) return;
    const auto both = [&](auto& items) {
        for (auto& item : items) item.begin += origin, item.end += origin;
    };
    const auto moments = [&](auto& items) {
        for (auto& item : items) item.time += origin;
    };
    both(timeline_.calls);
    both(timeline_.work);
    for (auto* ranges : {&timeline_.ranges, &timeline_.collections, &timeline_.profiler_work}) both(*ranges);
    moments(timeline_.samples);
    moments(timeline_.machine);
}

void KinetoCollector::write_remarks(bool own) {
    if (left_out_ > 0) remark(fmt::format("the trace has more events than are kept: its last {} were left out", left_out_));
    if (absurd_ > 0) remark(fmt::format("{} events without a possible time were left out", absurd_));
    if (names_.full()) remark("the trace has more different names than are kept: some are shown as (more)");
    if (stacks_full_) remark("the trace has more different call stacks than are kept: some calls have none");
    // Our own exports carry the remarks that their timeline had.
    if (own) return;
    if (profiler_time_ > 0) remark(fmt::format("the profiler itself took {:.1f} ms of the trace", ms_of(profiler_time_)));
    write_remarks_on_lines();
    if (!python_ && !timeline_.has_call_stacks && !timeline_.calls.empty())
        remark("the trace has no Python stacks: record with with_stack=True to see files and lines");
}

void KinetoCollector::write_remarks_on_lines() {
    constexpr std::string_view kWhy = "PyTorch's profiler does not note the line of a call";
    if (lines_.found && lines_.kept)
        remark(fmt::format("some lines were found by name in the source, others are those where functions begin: {}", kWhy));
    else if (lines_.found)
        remark(fmt::format("lines were found by name in the source: {}", kWhy));
    else if (python_)
        remark(fmt::format("lines are those where functions begin: {}", kWhy));
    if (lines_.changed.empty()) return;
    const std::string file = clean_text(lines_.changed.front(), 1024);
    const std::size_t others = lines_.changed.size() - 1;
    remark(others == 0
               ? fmt::format("{} was changed after the trace was made: its lines are those where functions begin", file)
               : fmt::format("{} and {} more were changed after the trace was made: their lines are those where functions begin",
                             file, others));
}

/// When the last call was made. Traces without a base have times since 1970 where these are large enough.
std::optional<std::int64_t> KinetoCollector::made() const {
    if (timeline_.calls.empty()) return std::nullopt;
    const Time last = timeline_.calls.back().end;
    if (base_time_) return last <= kLatest - *base_time_ ? std::optional(*base_time_ + last) : std::nullopt;
    constexpr Time kLongAgo = 1'000'000'000'000'000'000;  // 2001
    return last >= kLongAgo ? std::optional(last) : std::nullopt;
}

Timeline KinetoCollector::finish(const OwnSection& section, const FindSources& sources) {
    if (!section.present) drop_inner_calls();
    join();
    sort_timeline(timeline_);
    stacks_full_ |= !functions_.build(timeline_.calls, timeline_.stacks);
    functions_ = {};
    if (!section.present) lines_ = find_call_lines(timeline_.stacks, sources, made());
    timeline_.has_call_stacks = std::ranges::any_of(timeline_.calls, [&](const Call& call) {
        return std::ranges::any_of(timeline_.stacks[call.stack], [](const Frame& frame) { return !frame.native; });
    });
    shift(section.origin);
    describe_device(section.present);
    if (timeline_.processes.empty()) name_processes();
    if (timeline_.windows.empty()) add_window();
    write_remarks(section.present);
    for (std::string& text : remarks_) timeline_.remarks.push_back(std::move(text));
    timeline_.names = names_.release();
    return std::move(timeline_);
}

}  // namespace millrace::diagnose
