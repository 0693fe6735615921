#include "diagnose/reading/call_index.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace millrace::diagnose {
namespace {

std::uint64_t key_of(std::uint32_t correlation, std::uint32_t process) { return std::uint64_t{correlation} << 32 | process; }

}  // namespace

CallIndex::CallIndex(const std::vector<Call>& calls) {
    calls_.reserve(calls.size());
    for (std::uint32_t i = 0; i < calls.size(); ++i)
        if (calls[i].correlation != 0) calls_.emplace_back(key_of(calls[i].correlation, calls[i].process), i);
    std::ranges::sort(calls_);
}

std::optional<std::uint32_t> CallIndex::find(std::uint32_t correlation, std::uint32_t process) const {
    if (correlation == 0) return std::nullopt;
    const auto found = std::ranges::lower_bound(calls_, std::pair(key_of(correlation, process), 0u));
    if (found == calls_.end() || found->first >> 32 != correlation) return std::nullopt;
    if (process != 0 && found->first != key_of(correlation, process)) return std::nullopt;
    return found->second;
}

void complete_calls(Timeline& timeline, const CallIndex& index) {
    for (const Work& work : timeline.work) {
        const auto found = index.find(work.correlation, work.process);
        if (!found) continue;
        Call& call = timeline.calls[*found];
        // A graph's nodes run where they like; none of them speaks for the launch.
        if (call.kind == CallKind::kGraphLaunch) continue;
        if (call.stream == 0) call.stream = work.stream;
        if (work.kind == WorkKind::kKernel) continue;
        if (call.bytes == 0) call.bytes = work.bytes;
        if (call.from == MemoryKind::kUnknown) call.from = work.from;
        if (call.to == MemoryKind::kUnknown) call.to = work.to;
    }
}

void find_main_threads(Timeline& timeline) {
    std::unordered_map<std::uint32_t, std::size_t> number;
    for (std::size_t i = 0; i < timeline.processes.size(); ++i) number.emplace(timeline.processes[i].pid, i);
    std::vector<std::map<std::uint32_t, std::size_t>> launches(timeline.processes.size());
    for (const Call& call : timeline.calls) {
        const auto process = number.find(call.process);
        if (process == number.end()) continue;
        timeline.processes[process->second].has_gpu = true;
        if (call.kind == CallKind::kLaunch || call.kind == CallKind::kGraphLaunch) ++launches[process->second][call.thread];
    }
    for (const Work& work : timeline.work)
        if (const auto process = number.find(work.process); process != number.end())
            timeline.processes[process->second].has_gpu = true;
    for (std::size_t i = 0; i < launches.size(); ++i) {
        const auto most = std::ranges::max_element(launches[i], {}, [](const auto& entry) { return entry.second; });
        if (timeline.processes[i].main_thread == 0 && most != launches[i].end()) timeline.processes[i].main_thread = most->first;
    }
}

void sort_timeline(Timeline& timeline) {
    // Of two that begin together the longer one is around the other.
    const auto outer_first = [](const auto& one) { return std::pair(one.begin, -one.end); };
    std::ranges::stable_sort(timeline.calls, {}, outer_first);
    std::ranges::stable_sort(timeline.work, {}, outer_first);
    for (auto* ranges : {&timeline.ranges, &timeline.collections, &timeline.profiler_work})
        std::ranges::stable_sort(*ranges, {}, outer_first);
    std::ranges::stable_sort(timeline.windows, {}, &Window::begin);
    std::ranges::stable_sort(timeline.blocks, {}, &Block::begin);
    std::ranges::stable_sort(timeline.samples, {}, &Sample::time);
    std::ranges::stable_sort(timeline.machine, {}, &MachineSample::time);
    std::ranges::stable_sort(timeline.arguments, {}, [](const Arguments& a) { return std::pair(a.process, a.correlation); });
}

}  // namespace millrace::diagnose
