#include "diagnose/overhead.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "record/pulse_blocks.h"

namespace millrace::diagnose {
namespace {

/// From the first moment that anything is known of to the last.
Time run_length(const Timeline& timeline) {
    Time begin = std::numeric_limits<Time>::max(), end = std::numeric_limits<Time>::min();
    const auto cover = [&](Time first, Time last) { begin = std::min(begin, first), end = std::max(end, last); };
    for (const auto* windows : {&timeline.windows, &timeline.left_out})
        for (const Window& window : *windows) cover(window.begin, window.end);
    for (const Block& block : timeline.blocks) cover(block.begin, block.end);
    for (const Sample& sample : timeline.samples) cover(sample.time, sample.time);
    for (const MachineSample& sample : timeline.machine) cover(sample.time, sample.time);
    return begin < end ? end - begin : 0;
}

}  // namespace

std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded) {
    std::vector<std::pair<double, double>> blocks;  // ms per step, steps
    double steps = 0, ms = 0;
    for (const Block& block : unrecorded) {
        if (block.steps <= 0 || block.end <= block.begin) continue;
        const double length = static_cast<double>(block.end - block.begin) * 1e-6;
        blocks.emplace_back(length / block.steps, block.steps);
        steps += block.steps;
        ms += length;
    }
    if (ms < 1e3 * record::kLeastUnrecordedSeconds || steps < record::kLeastUnrecordedSteps) return std::nullopt;
    std::sort(blocks.begin(), blocks.end());
    double passed = 0;
    for (const auto& [each, count] : blocks)
        if ((passed += count) >= steps / 2) return each;
    return std::nullopt;
}

std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms, double idle_launches) {
    const Time run = run_length(timeline);
    if (!undisturbed_ms || *undisturbed_ms <= 0 || recorded_ms <= 0 || run <= 0) return std::nullopt;
    double inside = 0;  // windows of a made-up file may be longer together than there is time
    for (const auto* windows : {&timeline.windows, &timeline.left_out})
        for (const Window& window : *windows)
            if (window.process == process) inside += static_cast<double>(window.end - window.begin);
    const double share = std::min(1.0, inside / static_cast<double>(run));
    const double lost = std::max(0.0, 1 - *undisturbed_ms / recorded_ms);
    const double waiting = timeline.presence_share * record::kWaitingCostNs * idle_launches / (*undisturbed_ms * 1e6);
    return share * lost + (1 - share) * std::clamp(timeline.counting_share + waiting, 0.0, 1.0);
}

}  // namespace millrace::diagnose
