#include "diagnose/incomplete_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kFew = 64;  ///< launches that say nothing yet

std::uint64_t key(std::uint32_t process, std::uint32_t number) { return std::uint64_t{process} << 32 | number; }

struct Launches {
    std::size_t made = 0, ran = 0;
    bool captures = false;  ///< what is launched into a graph runs later, by the graph's number
};

/// Of each window in which something is missing, the thread.
std::map<const Window*, std::uint32_t> find_incomplete(const Timeline& timeline) {
    std::unordered_set<std::uint64_t> ran;
    for (const Work& work : timeline.work) ran.insert(key(work.process, work.correlation));
    std::map<const Window*, std::uint32_t> incomplete;
    for (const Window& window : timeline.windows) {
        std::map<std::uint32_t, Launches> threads;
        const auto begin = std::lower_bound(timeline.calls.begin(), timeline.calls.end(), window.begin,
                                            [](const Call& call, Time time) { return call.begin < time; });
        for (auto call = begin; call != timeline.calls.end() && call->begin < window.end; ++call) {
            if (call->process != window.process) continue;
            Launches& launches = threads[call->thread];
            launches.captures = launches.captures || call->kind == CallKind::kCapture;
            if (call->kind != CallKind::kLaunch || call->failed || call->correlation == 0) continue;
            ++launches.made;
            launches.ran += ran.count(key(call->process, call->correlation));
        }
        for (const auto& [thread, launches] : threads)
            if (launches.made >= kFew && launches.ran == 0 && !launches.captures) incomplete[&window] = thread;
    }
    return incomplete;
}

}  // namespace

void leave_out_incomplete_windows(Timeline& timeline) {
    const auto incomplete = find_incomplete(timeline);
    if (incomplete.empty()) return;
    const std::uint32_t thread = incomplete.begin()->second;
    if (incomplete.size() == timeline.windows.size()) {
        timeline.remarks.push_back(
            fmt::format("no kernel of thread {} was recorded, though it launched many: the GPU did more than is shown", thread));
        return;
    }
    timeline.remarks.push_back(fmt::format("{} of {} windows were left out: CUPTI delivered no kernel of thread {} in them",
                                           incomplete.size(), timeline.windows.size(), thread));
    std::vector<Window> bad, good;
    for (const Window& window : timeline.windows) (incomplete.count(&window) > 0 ? bad : good).push_back(window);
    const auto in_bad = [&](const auto& entry) {
        return std::any_of(bad.begin(), bad.end(), [&](const Window& window) {
            return entry.process == window.process && entry.begin >= window.begin && entry.begin < window.end;
        });
    };
    std::unordered_set<std::uint64_t> gone;
    for (const Call& call : timeline.calls)
        if (call.correlation != 0 && in_bad(call)) gone.insert(key(call.process, call.correlation));
    std::erase_if(timeline.work,
                  [&](const Work& work) { return gone.count(key(work.process, work.correlation)) > 0 || in_bad(work); });
    std::erase_if(timeline.calls, in_bad);
    timeline.windows = std::move(good);
}

}  // namespace millrace::diagnose
