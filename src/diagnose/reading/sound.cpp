#include "diagnose/reading/sound.h"

#include <algorithm>

namespace millrace::diagnose {
namespace {

constexpr Time kLongestSpan = 3'600'000'000'000;  ///< of a call, a job, a sleep
constexpr Time kFarthest = Time{1} << 57;         ///< from the first window: four years
constexpr Time kLatestMoment = Time{1} << 61;

/// Bounds of indices and times.
struct Bounds {
    explicit Bounds(const Timeline& timeline) : names(timeline.names.size()), stacks(timeline.stacks.size()) {
        if (!timeline.windows.empty())
            origin = timeline.windows.front().begin;
        else if (!timeline.work.empty())
            origin = timeline.work.front().begin;
        if (origin > kLatestMoment || origin < -kLatestMoment) origin = 0;
    }
    bool time(Time value) const {
        return value <= kLatestMoment && value >= -kLatestMoment && value - origin <= kFarthest && value - origin >= -kFarthest;
    }
    bool span(Time begin, Time end, Time longest = kLongestSpan) const {
        return time(begin) && time(end) && begin <= end && end - begin <= longest;
    }
    bool fits(const Call& call) const { return span(call.begin, call.end) && call.name < names && call.stack < stacks; }
    bool fits(const Work& work) const { return span(work.begin, work.end) && work.name < names; }
    bool fits(const Range& range) const { return span(range.begin, range.end, kFarthest) && range.name < names; }
    bool fits(const Sample& sample) const { return time(sample.time) && sample.stack < stacks && sample.wait < names; }
    bool fits(const Window& window) const { return span(window.begin, window.end, kFarthest); }
    bool fits(const Block& block) const {
        return span(block.begin, block.end, kFarthest) && block.steps >= 0 && block.steps < 1e15;
    }
    bool fits(const MachineSample& sample) const { return time(sample.time); }
    bool fits_run(const Window& run) const { return run.begin == run.end || fits(run); }

    std::size_t names, stacks;
    Time origin = 0;
};

constexpr auto kMoment = [](const auto& entry) {
    if constexpr (requires { entry.begin; })
        return entry.begin;
    else
        return entry.time;
};

/// Calls `use` with each list of entries.
template <typename TimelineLike, typename Use>
void for_each_list(TimelineLike& timeline, Use use) {
    for (auto* ranges : {&timeline.ranges, &timeline.collections, &timeline.profiler_work}) use(*ranges);
    for (auto* windows : {&timeline.windows, &timeline.left_out}) use(*windows);
    use(timeline.calls);
    use(timeline.work);
    use(timeline.samples);
    use(timeline.blocks);
    use(timeline.machine);
}

}  // namespace

bool is_sound(const Timeline& timeline) {
    if (timeline.names.empty() || timeline.stacks.empty() || !timeline.stacks.front().empty()) return false;
    const Bounds bounds(timeline);
    bool sound = bounds.fits_run(timeline.run);
    for_each_list(timeline, [&](const auto& entries) {
        sound = sound && std::ranges::all_of(entries, [&](const auto& entry) { return bounds.fits(entry); }) &&
                std::ranges::is_sorted(entries, {}, kMoment);
    });
    return sound;
}

Timeline made_sound(Timeline timeline, std::size_t& dropped) {
    if (timeline.names.empty()) timeline.names.emplace_back();
    if (timeline.stacks.empty()) timeline.stacks.emplace_back();
    timeline.stacks.front().clear();
    const Bounds bounds(timeline);
    if (!bounds.fits_run(timeline.run)) timeline.run = {};
    for_each_list(timeline, [&](auto& entries) {
        dropped += std::erase_if(entries, [&](const auto& entry) { return !bounds.fits(entry); });
        std::ranges::stable_sort(entries, {}, kMoment);
    });
    return timeline;
}

}  // namespace millrace::diagnose
