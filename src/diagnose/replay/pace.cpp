#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "diagnose/replay/study.h"
#include "record/pulse_blocks.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kCallKinds = static_cast<std::size_t>(CallKind::kAttribute) + 1;
constexpr double kDiffer = 0.02;  ///< what `compare` calls no difference

struct PaceStretch {
    Time begin = 0, end = 0;  ///< of the host
    std::size_t steps = 0;
};

/// All of a lane's steps; with evaluations between them from the first evaluation to the last, so that these count in proportion.
PaceStretch stretch_of(const Study& study, std::size_t lane) {
    const WindowSteps& window = study.steps[lane];
    const std::vector<Job>& jobs = study.lanes[lane].jobs;
    if (window.steps.empty() || window.evaluations.size() == 1) return {};
    if (window.evaluations.empty())
        return {jobs[window.steps.front().first_job].launched, jobs[window.steps.back().end_job].launched, window.steps.size()};
    const std::uint32_t first = window.evaluations.front().first_job, last = window.evaluations.back().first_job;
    const auto between = [&](const Step& step) { return step.first_job >= first && step.first_job < last; };
    return {jobs[first].launched, jobs[last].launched,
            static_cast<std::size_t>(std::count_if(window.steps.begin(), window.steps.end(), between))};
}

/// Calls of each kind per training step; 0 none.
std::array<double, kCallKinds> calls_per_step(const Study& study) {
    std::array<double, kCallKinds> calls{};
    double steps = 0;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const PaceStretch stretch = stretch_of(study, lane);
        if (stretch.steps == 0) continue;
        steps += static_cast<double>(stretch.steps);
        for (const Call& call : within(study.timeline.calls, &Call::begin, stretch.begin, stretch.end))
            if (call.process == study.launcher.process) ++calls[static_cast<std::size_t>(call.kind)];
    }
    for (double& count : calls) count = steps > 0 ? count / steps : 0;
    return calls;
}

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

std::vector<Block> in_training_steps(const Study& study) {
    const std::array<double, kCallKinds> calls = calls_per_step(study);
    std::vector<Block> converted;
    for (Block block : study.timeline.blocks) {
        if (block.process != 0 && block.process != study.launcher.process) continue;
        const double each = calls[std::min(static_cast<std::size_t>(block.call), kCallKinds - 1)];
        const double times = block.calls_per_step > 0 && each > 0 ? block.calls_per_step / each : 1;
        const double whole = times >= 1 ? std::round(times) : 1 / std::round(1 / times);
        if (std::abs(times / whole - 1) > kDiffer) continue;
        // Of both ways to count them, the one by which they take about as long as those in windows.
        const double counted_ms = ms_of(block.end - block.begin) / block.steps;
        const bool other =
            std::abs(std::log(counted_ms / whole / study.recorded_ms)) < std::abs(std::log(counted_ms / study.recorded_ms));
        if (other) block.steps *= whole;
        // Turns of a loop inside of a step show how fast that loop is.
        if (!other || block.steps >= 1) converted.push_back(block);
    }
    return converted;
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
    const Time run = run_length(timeline);
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
