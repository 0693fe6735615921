#include <algorithm>
#include <map>
#include <set>

#include "diagnose/frame_counts.h"
#include "diagnose/study.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kFewLaunches = 8;
constexpr std::size_t kFewEvaluationSamples = 2;  ///< one may be of what comes before the first launch of an evaluation

using Counts = std::map<std::uint32_t, std::size_t>;  ///< by number of a stack

/// Stacks of the launches of jobs [first, end).
void count_launches(const Study& study, std::size_t lane, std::uint32_t first, std::uint32_t end, Counts& counts) {
    for (std::uint32_t job = first; job < end; ++job)
        if (const std::uint32_t call = study.lanes[lane].jobs[job].call; call != kNoIndex)
            if (const std::uint32_t stack = study.call(lane, call).stack; stack != kNoStack) ++counts[stack];
}

/// Stacks of the main thread in [begin, end) of the host's time.
void count_samples(const Study& study, Time begin, Time end, Counts& counts) {
    const auto& samples = study.timeline.samples;
    auto sample = std::partition_point(samples.begin(), samples.end(), [begin](const Sample& each) { return each.time < begin; });
    for (; sample != samples.end() && sample->time < end; ++sample)
        if (sample->process == study.launcher.process && sample->thread == study.launcher.main_thread &&
            sample->stack != kNoStack)
            ++counts[sample->stack];
}

struct SeenLaunches {
    Counts launches, samples;
};

SeenLaunches in_training(const Study& study) {
    SeenLaunches seen;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const std::vector<Job>& jobs = study.lanes[lane].jobs;
        for (const Step& step : study.steps[lane].steps) {
            count_launches(study, lane, step.first_job, step.end_job, seen.launches);
            // Before an evaluation launches anything it may load its data: that is no training.
            const std::uint32_t last = step.before_phase ? step.end_job - 1 : step.end_job;
            count_samples(study, jobs[step.first_job].launched, jobs[last].launched, seen.samples);
        }
    }
    return seen;
}

SeenLaunches in_evaluations(const Study& study) {
    SeenLaunches seen;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
        const std::vector<Job>& jobs = study.lanes[lane].jobs;
        for (const Phase& phase : study.steps[lane].evaluations) {
            count_launches(study, lane, phase.first_job, phase.end_job, seen.launches);
            const std::uint32_t before = phase.first_job > 0 ? phase.first_job - 1 : 0;
            count_samples(study, jobs[before].launched, jobs[phase.end_job].launched, seen.samples);
        }
    }
    return seen;
}

std::set<Line> lines_of(const Study& study, const SeenLaunches& seen) {
    std::set<Line> lines;
    for (const auto& [stack, count] : seen.launches)
        for (const Frame& frame : study.timeline.stacks[stack])
            if (!frame.native) lines.insert(line_of(frame));
    std::map<Line, std::size_t> sampled;
    for (const auto& [stack, count] : seen.samples)
        for (const Frame& frame : study.timeline.stacks[stack])
            if (!frame.native && (sampled[line_of(frame)] += count) >= kFewEvaluationSamples) lines.insert(line_of(frame));
    return lines;
}

}  // namespace

std::set<Line> lines_of_training(const Study& study) { return lines_of(study, in_training(study)); }

std::optional<Spot> place_of_evaluation(const Study& study) {
    const std::set<Line> training = lines_of_training(study);
    const SeenLaunches seen = in_evaluations(study);
    std::size_t launches = 0;
    for (const auto& [stack, count] : seen.launches) launches += count;
    const Counts& counts = launches < kFewLaunches && !seen.samples.empty() ? seen.samples : seen.launches;

    FrameCounts all, own;
    std::size_t total = 0;
    for (const auto& [number, count] : counts) {
        const Stack& stack = study.timeline.stacks[number];
        total += std::any_of(stack.begin(), stack.end(), is_users) ? count : 0;
        for (std::size_t at = 0; at < stack.size(); ++at) {
            if (!is_users(stack[at])) continue;
            all.add(stack, at, count);
            if (!training.contains(line_of(stack[at]))) own.add(stack, at, count);
        }
    }
    const double least = std::max(1.0, study.policy.launches_under * static_cast<double>(total));
    const Under *line = own.line(least), *function = own.function(least);
    if (line && (!function || function->depth <= line->depth)) return line->spot;
    if (function) return own.busiest(*function)->spot;
    FrameCounts parting;
    for (const Line& other : training)
        if (const auto both = all.functions.find({std::get<0>(other), std::get<1>(other)});
            both != all.functions.end() && !all.lines.contains(other))
            parting.functions.insert(*both);
    if (const Under* shared = parting.function(least)) return all.busiest(*shared)->spot;
    if (const Under* any = all.line(least)) return any->spot;
    return std::nullopt;
}

}  // namespace millrace::diagnose
