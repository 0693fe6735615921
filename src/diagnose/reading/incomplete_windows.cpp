#include "diagnose/reading/incomplete_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kFew = 64;  ///< launches that say nothing yet

std::uint64_t key(std::uint32_t process, std::uint32_t number) { return std::uint64_t{process} << 32 | number; }

struct Launches {
    std::size_t made = 0, ran = 0;
    bool captures = false;  ///< what is launched into a graph runs later, by the graph's number
};

/// Windows by process. Those of one process do not overlap; where a file says so, what lies in several counts for the last.
class WindowIndex {
public:
    explicit WindowIndex(const std::vector<Window>& windows) : windows_(windows) {
        for (std::uint32_t i = 0; i < windows.size(); ++i) of_process_[windows[i].process].push_back(i);
    }
    template <class Entry>
    [[nodiscard]] std::optional<std::uint32_t> of(const Entry& entry) const {
        const auto found = of_process_.find(entry.process);
        if (found == of_process_.end()) return std::nullopt;
        const auto behind = std::upper_bound(found->second.begin(), found->second.end(), entry.begin,
                                             [this](Time time, std::uint32_t window) { return time < windows_[window].begin; });
        if (behind == found->second.begin() || entry.begin >= windows_[*(behind - 1)].end) return std::nullopt;
        return *(behind - 1);
    }

private:
    const std::vector<Window>& windows_;
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> of_process_;
};

/// Of each window in which something is missing, the thread.
std::map<std::uint32_t, std::uint32_t> find_incomplete(const Timeline& timeline, const WindowIndex& windows) {
    std::unordered_set<std::uint64_t> ran;
    for (const Work& work : timeline.work) ran.insert(key(work.process, work.correlation));
    std::unordered_map<std::uint64_t, Launches> threads;  // of a window each
    for (const Call& call : timeline.calls) {
        const auto window = windows.of(call);
        if (!window) continue;
        Launches& launches = threads[key(*window, call.thread)];
        launches.captures = launches.captures || call.kind == CallKind::kCapture;
        if (call.kind != CallKind::kLaunch || call.failed || call.correlation == 0) continue;
        ++launches.made;
        launches.ran += ran.count(key(call.process, call.correlation));
    }
    std::map<std::uint32_t, std::uint32_t> incomplete;
    for (const auto& [place, launches] : threads) {
        if (launches.made < kFew || launches.ran > 0 || launches.captures) continue;
        const auto thread = static_cast<std::uint32_t>(place);
        const auto entry = incomplete.emplace(static_cast<std::uint32_t>(place >> 32), thread).first;
        entry->second = std::max(entry->second, thread);
    }
    return incomplete;
}

}  // namespace

void leave_out_incomplete_windows(Timeline& timeline) {
    const WindowIndex windows(timeline.windows);
    const auto incomplete = find_incomplete(timeline, windows);
    if (incomplete.empty()) return;
    const std::uint32_t thread = incomplete.begin()->second;
    if (incomplete.size() == timeline.windows.size()) {
        timeline.remarks.push_back(
            fmt::format("no kernel of thread {} was recorded, though it launched many: the GPU did more than is shown", thread));
        return;
    }
    timeline.remarks.push_back(fmt::format("{} of {} windows were left out: CUPTI delivered no kernel of thread {} in them",
                                           incomplete.size(), timeline.windows.size(), thread));
    const auto in_bad = [&](const auto& entry) {
        const auto window = windows.of(entry);
        return window && incomplete.count(*window) > 0;
    };
    std::unordered_set<std::uint64_t> gone;
    for (const Call& call : timeline.calls)
        if (call.correlation != 0 && in_bad(call)) gone.insert(key(call.process, call.correlation));
    std::erase_if(timeline.work,
                  [&](const Work& work) { return gone.count(key(work.process, work.correlation)) > 0 || in_bad(work); });
    std::erase_if(timeline.calls, in_bad);
    std::vector<Window> good;
    for (std::uint32_t i = 0; i < timeline.windows.size(); ++i)
        (incomplete.count(i) == 0 ? good : timeline.left_out).push_back(timeline.windows[i]);
    timeline.windows = std::move(good);
}

}  // namespace millrace::diagnose
