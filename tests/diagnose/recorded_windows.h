#pragma once
// What a recorder has of a simulated program: some windows, and between them blocks of steps.

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {

inline constexpr int kFetchedAhead = 60;  ///< steps whose batches are there already

/// A loader whose batches take longer than the step, once those that were fetched ahead are used up.
inline void starved(SimulatedProgram& p, int step, bool) {
    p.next_batch(step < kFetchedAhead ? 10 : 20'000, 1, 37, 'R', {user_line(90, "__getitem__")});
    p.at(38);
    train(p, {4, 200});
}

/// When the host has launched the last kernel of a step.
inline Time end_of(const Timeline& timeline, int step) {
    const auto update = std::ranges::find(timeline.names, "multi_tensor_apply_kernel") - timeline.names.begin();
    std::vector<std::uint32_t> updates;
    for (const Work& work : timeline.work)
        if (work.name == static_cast<std::uint32_t>(update)) updates.push_back(work.correlation);
    const auto call = std::ranges::find(timeline.calls, updates.at(static_cast<std::size_t>(step)), &Call::correlation);
    return call->end + 500;
}

/// What a recorder has of it: windows by their first and last steps, and between them blocks of ten steps.
inline Timeline recorded(const StepBody& body, int steps, const std::vector<std::pair<int, int>>& windows) {
    Timeline timeline = simulate(body, false, steps).timeline;
    const Timeline whole = timeline;
    timeline.windows.clear();
    for (const auto& [first, last] : windows) timeline.windows.push_back({end_of(whole, first), end_of(whole, last), kProcess});
    const auto outside = [&](const auto& entry) {
        return std::ranges::none_of(
            timeline.windows, [&](const Window& window) { return entry.begin >= window.begin && entry.begin < window.end; });
    };
    std::erase_if(timeline.calls, outside);
    std::unordered_set<std::uint32_t> launched;
    for (const Call& call : timeline.calls) launched.insert(call.correlation);
    std::erase_if(timeline.work, [&](const Work& work) { return !launched.contains(work.correlation); });
    for (int step = 0; step + 10 < steps; ++step) {
        const Time begin = end_of(whole, step), end = end_of(whole, step + 10);
        const bool free = std::ranges::none_of(timeline.windows,
                                               [&](const Window& window) { return begin < window.end && window.begin < end; });
        if (!free || begin < timeline.windows.front().begin) continue;
        timeline.blocks.push_back({begin, end, 10});
        step += 9;
    }
    return timeline;
}

inline bool says(const Diagnosis& diagnosis, const std::string& text) {
    return std::ranges::any_of(diagnosis.remarks,
                               [&](const std::string& remark) { return remark.find(text) != std::string::npos; });
}

}  // namespace millrace::diagnose
