#include <algorithm>
#include <map>
#include <set>

#include "diagnose/replay/study.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kFewLaunches = 8;
constexpr std::size_t kFewEvaluationSamples = 2;  ///< one may be of what comes before the first launch of an evaluation

using Counts = std::map<std::uint32_t, std::size_t>;  ///< by number of a stack

struct SeenStacks {
    Counts launches, samples;  ///< samples: of the main thread
};

/// In training steps, or in the evaluations between them.
SeenStacks seen_in(const Study& study, std::vector<Step> WindowSteps::*which) {
    SeenStacks seen;
    study.for_each_job(which, [&](std::size_t lane, std::uint32_t, const Job& job) {
        if (job.call != kNoIndex && study.call(lane, job.call).stack != kNoStack)
            ++seen.launches[study.call(lane, job.call).stack];
    });
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
        for (const Step& step : study.steps[lane].*which) {
            // Before an evaluation launches anything it may load its data.
            const auto [begin, end] = study.host_span(lane, step);
            const Time from = which == &WindowSteps::steps ? begin : study.lanes[lane].jobs[step.first_job - 1].launched;
            for (const Sample& sample : within(study.timeline.samples, &Sample::time, from, end))
                if (study.is_main(sample) && sample.stack != kNoStack) ++seen.samples[sample.stack];
        }
    return seen;
}

std::set<Line> lines_of(const Study& study, const SeenStacks& seen) {
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

std::set<Line> lines_of_training(const Study& study) { return lines_of(study, seen_in(study, &WindowSteps::steps)); }

std::optional<Spot> place_of_evaluation(const Study& study) {
    const std::set<Line> training = lines_of_training(study);
    const SeenStacks seen = seen_in(study, &WindowSteps::evaluations);
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
    const double least = std::max(1.0, kPolicy.launches_under * static_cast<double>(total));
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
