#include "diagnose/program/line.h"

#include <array>
#include <map>
#include <numeric>
#include <unordered_map>

#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {
namespace {

/// Share of a thread's calls that may overlap the main thread's: clocks are read one after the other.
constexpr double kTurns = 0.02;
constexpr Time kLongestQueue = 10'000'000'000;  ///< what was launched runs within ten seconds

/// Of what a call starts: kernels, copies, sets; 3 anything else.
std::size_t class_of(CallKind kind) {
    switch (kind) {
        case CallKind::kLaunch: return 0;
        case CallKind::kCopy:
        case CallKind::kCopyAsync: return 1;
        case CallKind::kSet:
        case CallKind::kSetAsync: return 2;
        default: return 3;
    }
}

std::uint32_t main_thread_of(const Timeline& timeline, std::uint32_t process) {
    std::map<std::uint32_t, std::size_t> all;
    for (const Call& call : timeline.calls)
        if (call.process == process) ++all[call.thread];
    if (all.contains(process)) return process;  // Linux: the first thread has the process's number
    for (const Process& entry : timeline.processes)
        if (entry.pid == process && all.contains(entry.main_thread)) return entry.main_thread;
    // The thread with frames is the user's; without any, the busiest.
    std::map<std::uint32_t, std::size_t> framed;
    for (const Call& call : timeline.calls)
        if (call.process == process && call.stack != kNoStack) ++framed[call.thread];
    return key_with_most(framed.empty() ? all : framed);
}

/// Threads that launch while the main thread is in no call.
std::vector<std::uint32_t> threads_in_turn(const Timeline& timeline, std::uint32_t process, std::uint32_t main_thread) {
    struct Count {
        std::size_t calls = 0, launches = 0, overlapping = 0;
    };
    std::map<std::uint32_t, Count> counts;
    std::unordered_map<std::uint32_t, Time> pending;  // ends of other threads' last calls
    Time main_end = 0;
    for (const Call& call : timeline.calls) {
        if (call.process != process) continue;
        if (call.thread == main_thread) {
            for (auto& [thread, end] : pending) {
                if (end > call.begin) ++counts[thread].overlapping;
                end = 0;
            }
            main_end = std::max(main_end, call.end);
            continue;
        }
        Count& count = counts[call.thread];
        ++count.calls;
        count.launches += class_of(call.kind) < 3 || is_launch(call.kind) ? 1 : 0;
        count.overlapping += call.begin < main_end ? 1 : 0;
        Time& end = pending[call.thread];
        end = std::max(end, call.end);
    }
    std::vector<std::uint32_t> threads{main_thread};
    for (const auto& [thread, count] : counts)
        if (count.launches > 0 && static_cast<double>(count.overlapping) <= kTurns * static_cast<double>(count.calls))
            threads.push_back(thread);
    return threads;
}

/// Of a call, or of the work that it started.
std::uint64_t call_key(const auto& entry) { return (std::uint64_t{entry.process} << 32) | entry.correlation; }

/// Joins each correlation of the window with the call that began it, also where that lies inside another one.
std::unordered_map<std::uint64_t, std::uint32_t> take_calls(const Timeline& timeline, const Launcher& launcher, Lane& lane) {
    std::unordered_map<std::uint64_t, std::uint32_t> by_correlation;
    std::unordered_map<std::uint32_t, std::uint32_t> open;  // thread: position of its last outermost call
    for (const Call& call : within(timeline.calls, &Call::begin, lane.begin, lane.end)) {
        if (call.process != launcher.process || std::ranges::find(launcher.threads, call.thread) == launcher.threads.end())
            continue;
        auto outer = open.find(call.thread);
        const bool nested = outer != open.end() && call.begin < timeline.calls[lane.calls[outer->second]].end;
        if (!nested) {
            open[call.thread] = static_cast<std::uint32_t>(lane.calls.size());
            lane.calls.push_back(static_cast<std::uint32_t>(&call - timeline.calls.data()));
        }
        if (call.correlation != 0) by_correlation.try_emplace(call_key(call), open[call.thread]);
    }
    return by_correlation;
}

/// One job for each piece of work.
std::vector<Job> find_work(const Timeline& timeline, const Launcher& launcher, const Lane& lane,
                           const std::unordered_map<std::uint64_t, std::uint32_t>& by_correlation) {
    // Other threads' launches, for when their work was asked for.
    std::unordered_map<std::uint64_t, Time> foreign;
    for (const Call& call : within(timeline.calls, &Call::begin, lane.begin, lane.end))
        if (call.process == launcher.process && call.correlation != 0) foreign.try_emplace(call_key(call), call.begin);
    std::vector<Job> found;
    const auto first = std::ranges::lower_bound(timeline.work, lane.begin, {}, &Work::begin);
    for (auto i = static_cast<std::uint32_t>(first - timeline.work.begin()); i < timeline.work.size(); ++i) {
        const Work& work = timeline.work[i];
        if (work.begin > lane.end + kLongestQueue) break;
        if (work.process != launcher.process || work.device != launcher.device) continue;
        const auto own = work.correlation == 0 ? by_correlation.end() : by_correlation.find(call_key(work));
        if (own == by_correlation.end() && work.begin >= lane.end) continue;
        const auto other = work.correlation == 0 ? foreign.end() : foreign.find(call_key(work));
        const Time launched = other == foreign.end() ? lane.begin : other->second;
        const Time length = std::max<Time>(0, work.end - work.begin);
        found.push_back({work.begin, work.begin + length, length, kNoIndex, launched, work.stream, i});
        if (own == by_correlation.end()) continue;
        found.back().call = own->second;
        found.back().launched = timeline.calls[lane.calls[own->second]].begin;
    }
    return found;
}

/// By launch. Work without a known launch was launched before the window, or else after what began before it on its
/// stream: streams keep their order.
void put_in_order(const Lane& lane, std::vector<Job>& found) {
    std::ranges::stable_sort(found, {}, &Job::begin);
    std::unordered_map<std::uint32_t, Time> latest;
    for (Job& entry : found) {
        Time& launched = latest.try_emplace(entry.stream, lane.begin).first->second;
        if (entry.call == kNoIndex && entry.launched == lane.begin) entry.launched = launched;
        launched = std::max(launched, entry.launched);
    }
    std::ranges::stable_sort(found, {}, &Job::launched);
}

/// Recorders were seen to give all work of a thread the number of one call. A launch starts one kernel, so that is noticed; the
/// work then belongs to the thread's calls without any, kind by kind and one after the other.
void repair(const Timeline& timeline, Lane& lane, std::vector<Job>& found) {
    std::vector<std::size_t> works(lane.calls.size(), 0), kernels(lane.calls.size(), 0);
    for (const Job& entry : found) {
        if (entry.call == kNoIndex) continue;
        const Work& work = timeline.work[entry.first_work];
        ++works[entry.call];
        kernels[entry.call] += work.kind == WorkKind::kKernel && work.graph_node == 0 ? 1 : 0;
    }
    const auto suspect = [&](std::uint32_t call) {
        return class_of(timeline.calls[lane.calls[call]].kind) < 3 && works[call] >= 3 && kernels[call] >= 2;
    };
    std::array<std::vector<std::uint32_t>, 3> waiting;
    std::uint32_t thread = 0;
    for (std::uint32_t call = 0; call < lane.calls.size(); ++call)
        if (suspect(call)) thread = timeline.calls[lane.calls[call]].thread;
    if (thread == 0) return;
    for (std::uint32_t call = 0; call < lane.calls.size(); ++call) {
        const Call& entry = timeline.calls[lane.calls[call]];
        if (entry.thread == thread && class_of(entry.kind) < 3 && (works[call] == 0 || suspect(call)))
            waiting[class_of(entry.kind)].push_back(call);
    }
    std::vector<Job*> orphans;
    for (Job& entry : found)
        if (entry.call != kNoIndex && suspect(entry.call)) orphans.push_back(&entry);
    std::ranges::stable_sort(orphans, {}, &Job::begin);
    std::array<std::size_t, 3> next{};
    for (Job* entry : orphans) {
        const Work& work = timeline.work[entry->first_work];
        const auto which = static_cast<std::size_t>(work.kind);
        entry->call = kNoIndex;
        entry->launched = lane.begin;
        if (which >= 3 || next[which] >= waiting[which].size()) continue;
        const std::uint32_t call = waiting[which][next[which]];
        if (timeline.calls[lane.calls[call]].begin > work.begin) continue;
        ++next[which];
        ++lane.rejoined;
        entry->call = call;
        entry->launched = timeline.calls[lane.calls[call]].begin;
    }
}

/// Parts of one copy and nodes of one graph become one job.
void make_jobs(const Timeline& timeline, std::vector<Job> found, Lane& lane) {
    std::unordered_map<std::uint32_t, std::uint32_t> open;  // call: its job, where parts may follow
    std::vector<Time> covered;
    for (Job& entry : found) {
        const Work& work = timeline.work[entry.first_work];
        if (entry.call != kNoIndex && (work.graph_node != 0 || work.kind == WorkKind::kCopy)) {
            const auto [same, fresh] = open.try_emplace(entry.call, static_cast<std::uint32_t>(lane.jobs.size()));
            if (!fresh) {
                Job& job = lane.jobs[same->second];
                // By begin, so what is covered only grows.
                Time& until = covered[same->second];
                job.busy += std::max<Time>(0, work.end - std::max(work.begin, until));
                until = std::max(until, work.end);
                job.begin = std::min(job.begin, work.begin);
                job.end = std::max(job.end, work.end);
                job.more_work.push_back(entry.first_work);
                continue;
            }
        }
        covered.push_back(work.end);
        lane.jobs.push_back(std::move(entry));
    }
}

}  // namespace

std::optional<Launcher> find_launcher(const Timeline& timeline) {
    std::map<std::pair<std::uint32_t, std::uint16_t>, double> busy;
    for (const Work& work : timeline.work) busy[{work.process, work.device}] += static_cast<double>(work.end - work.begin) + 1;
    if (busy.empty()) return std::nullopt;
    const auto most = std::ranges::max_element(busy, {}, [](const auto& entry) { return entry.second; });
    const auto [process, device] = most->first;
    const std::uint32_t main_thread = main_thread_of(timeline, process);
    return Launcher{process, device, main_thread, threads_in_turn(timeline, process, main_thread)};
}

Lane read_lane(const Timeline& timeline, const Launcher& launcher, Time begin, Time end) {
    Lane lane;
    lane.begin = begin;
    lane.end = end;
    const auto by_correlation = take_calls(timeline, launcher, lane);
    auto found = find_work(timeline, launcher, lane, by_correlation);
    repair(timeline, lane, found);
    put_in_order(lane, found);
    make_jobs(timeline, std::move(found), lane);
    lane.jobs_of_call.assign(lane.calls.size() + 1, 0);
    for (std::uint32_t i = 0; i < lane.jobs.size(); ++i)
        if (lane.jobs[i].call != kNoIndex) ++lane.jobs_of_call[lane.jobs[i].call + 1], lane.own_jobs.push_back(i);
    std::partial_sum(lane.jobs_of_call.begin(), lane.jobs_of_call.end(), lane.jobs_of_call.begin());
    std::ranges::stable_sort(lane.own_jobs, {}, [&](std::uint32_t job) { return lane.jobs[job].call; });
    return lane;
}

std::vector<Window> windows_of(const Timeline& timeline, const Launcher& launcher) {
    std::vector<Window> windows;
    for (const Window& window : timeline.windows) {
        if (window.process != launcher.process && window.process != 0) continue;
        if (window.end <= window.begin) continue;
        if (!windows.empty() && window.begin < windows.back().end)
            windows.back().end = std::max(windows.back().end, window.end);
        else
            windows.push_back(window);
    }
    if (!windows.empty() || timeline.work.empty()) return windows;
    Window all{timeline.work.front().begin, timeline.work.front().end, launcher.process};
    for (const Work& work : timeline.work) all.end = std::max(all.end, work.end + 1);
    if (!timeline.calls.empty()) all.begin = std::min(all.begin, timeline.calls.front().begin);
    return {all};
}

}  // namespace millrace::diagnose
