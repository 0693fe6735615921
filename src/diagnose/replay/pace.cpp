#include <algorithm>
#include <array>
#include <cmath>

#include "diagnose/replay/study.h"
#include "record/pulse_blocks.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kCallKinds = static_cast<std::size_t>(CallKind::kAttribute) + 1;
constexpr double kDiffer = 0.02;  ///< what `compare` calls no difference

/// Calls of each kind per training step, from a window's first step to its last; 0 none. One evaluation between them does not
/// tell how often they come.
std::array<double, kCallKinds> calls_per_step(const Study& study) {
    std::array<double, kCallKinds> calls{};
    double steps = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const WindowSteps& window = study.steps[lane];
        if (window.steps.empty() || window.evaluations.size() == 1) continue;
        const std::vector<Job>& jobs = study.lanes[lane].jobs;
        const Time begin = jobs[window.steps.front().first_job].launched, end = jobs[window.steps.back().end_job].launched;
        steps += static_cast<double>(window.steps.size());
        for (const Call& call : within(study.timeline.calls, &Call::begin, begin, end))
            if (call.process == study.launcher.process) ++calls[static_cast<std::size_t>(call.kind)];
    }
    for (double& count : calls) count = steps > 0 ? count / steps : 0;
    return calls;
}

}  // namespace

std::vector<Block> in_training_steps(const Study& study) {
    const std::array<double, kCallKinds> calls = calls_per_step(study);
    std::vector<Block> believed;
    for (const Block& block : study.timeline.blocks) {
        if (block.process != 0 && block.process != study.launcher.process) continue;
        const double each = calls[std::min(static_cast<std::size_t>(block.call), kCallKinds - 1)];
        const bool known = block.calls_per_step > 0 && each > 0;
        if (!known || std::abs(block.calls_per_step / each - 1) <= kDiffer) believed.push_back(block);
    }
    return believed;
}

BlockSpeed speed_of(std::span<const Block> blocks) {
    BlockSpeed speed;
    std::vector<std::pair<double, double>> lengths;  // of a step; steps of that length
    double wait = 0, waited = 0;
    for (const Block& block : blocks) {
        if (block.steps <= 0 || block.end <= block.begin) continue;
        const double ms = ms_of(block.end - block.begin);
        lengths.emplace_back(ms / block.steps, block.steps);
        speed.steps += block.steps;
        speed.ms += ms;
        if (block.loader_wait_ms) wait += *block.loader_wait_ms * block.steps, waited += block.steps;
    }
    speed.median_ms = record::weighted_median(std::move(lengths));
    if (waited > 0) speed.wait_ms = wait / waited;
    return speed;
}

std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded) {
    const BlockSpeed speed = speed_of(unrecorded);
    if (speed.ms < 1e3 * record::kLeastUnrecordedSeconds || speed.steps < record::kLeastUnrecordedSteps) return std::nullopt;
    return speed.median_ms;
}

std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms, double presence_ms) {
    const Time run = timeline.run.end - timeline.run.begin;
    if (!undisturbed_ms || *undisturbed_ms <= 0 || recorded_ms <= 0 || run <= 0) return std::nullopt;
    double inside = 0;  // windows of a made-up file may be longer together than there is time
    for (const auto* windows : {&timeline.windows, &timeline.left_out})
        for (const Window& window : *windows)
            if (window.process == process) inside += static_cast<double>(window.end - window.begin);
    const double share = std::min(1.0, inside / static_cast<double>(run));
    const double lost = std::max(0.0, 1 - *undisturbed_ms / recorded_ms);
    const double waiting = presence_ms / (*undisturbed_ms + presence_ms);
    const double cost = share * lost + (1 - share) * std::clamp(timeline.counting_share + waiting, 0.0, 1.0);
    return cost < 1 ? cost / (1 - cost) : std::optional<double>();
}

}  // namespace millrace::diagnose
