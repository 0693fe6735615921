#include "diagnose/diagnose.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "diagnose/causes/owners.h"
#include "diagnose/compare/statistics.h"
#include "diagnose/findings/findings.h"
#include "diagnose/overview/overview.h"
#include "diagnose/reading/sound.h"
#include "diagnose/replay/pace.h"

namespace millrace::diagnose {
namespace {

constexpr double kMuchIdle = 0.15;  ///< a GPU that idles more, for no known reason, is no clean bill; nor are such pauses unsaid

void describe_steps(const Study& study, Diagnosis& diagnosis) {
    std::vector<Time> lengths;
    const bool whole = study.is_shapeless();
    bool ranges = false;
    for (const WindowSteps& window : study.steps) {
        ranges = ranges || window.source == StepSource::kRanges;
        for (const Step& step : window.steps) {
            lengths.push_back(step.end - step.begin);
            diagnosis.recorded.emplace_back(step.begin, step.end);
        }
    }
    diagnosis.steps = lengths.size();
    diagnosis.step_ms = ms_of(median_of(lengths));
    if (whole) diagnosis.remarks.push_back("no step returns in the sequence of launches: a window counts as one step");
    if (ranges) diagnosis.remarks.push_back("steps are those that the program or its profiler marked");
    if (study.steps.size() > 1 || whole) return;
    if (lengths.size() < kPolicy.few_steps)
        diagnosis.remarks.push_back(
            fmt::format("only {} steps were seen: record a longer run for surer findings", lengths.size()));
}

void describe_recording(const Study& study, Diagnosis& diagnosis) {
    diagnosis.undisturbed_step_ms = study.undisturbed_ms;
    diagnosis.costed_step_ms = study.costed_ms();
    diagnosis.unseen_loading_ms = study.unseen_loading_ms();
    diagnosis.undisturbed_evaluation_ms = study.undisturbed_evaluation_ms;
    if (const auto pace = study.pace(); pace && *pace > 0) diagnosis.window_overhead_share = std::max(0.0, 1 / *pace - 1);
    if (study.blocks.empty() && !study.timeline.blocks.empty())
        diagnosis.remarks.push_back(
            "steps counted outside of windows are not those in windows: the pace without recording is not known");
    if (study.replay_error > kPolicy.replay_error)
        diagnosis.remarks.push_back(
            fmt::format("the replay of the recording is off by {:.0f} %: costs are less sure", 100 * study.replay_error));
    if (study.is_profiled())
        diagnosis.remarks.push_back(
            fmt::format("noting calls, operators and functions made a step of {:.1f} ms out of one of {:.1f} ms, which costs are "
                        "of; record with `millrace record`, or without with_stack, for surer ones",
                        study.recorded_ms, study.base_ms));
    if (study.shapeless > 0)
        diagnosis.remarks.push_back(fmt::format("in {} of {} windows no step returns as in the others: they were left out",
                                                study.shapeless, study.lanes.size()));
    if (study.timeline.dropped > 0)
        diagnosis.remarks.push_back(fmt::format("{} records were lost: costs may be too low", study.timeline.dropped));
    if (study.timeline.samples.empty() && study.timeline.source == Source::kRecording)
        diagnosis.remarks.push_back("the host was not sampled: loader waits, file output and Python work cannot be told apart");
    bool calls = false;
    std::size_t rejoined = 0;
    for (const Lane& lane : study.lanes) calls = calls || !lane.calls.empty(), rejoined += lane.rejoined;
    if (rejoined > 0)
        diagnosis.remarks.push_back(
            fmt::format("{} jobs came with the number of another call and were joined by order", rejoined));
    if (!calls) diagnosis.remarks.push_back("no calls were recorded: idle time stays unexplained");
}

}  // namespace

Diagnosis diagnose(const Timeline& timeline) {
    if (!is_sound(timeline)) {
        std::size_t dropped = 0;
        const Timeline sound = made_sound(timeline, dropped);
        Diagnosis diagnosis = diagnose(sound);
        if (dropped > 0) diagnosis.remarks.push_back(fmt::format("{} entries contradict themselves and were left out", dropped));
        return diagnosis;
    }
    if (timeline.source == Source::kTraining) return diagnose_training(timeline);
    Diagnosis diagnosis = head_of(timeline);
    const auto launcher = find_launcher(timeline);
    if (!launcher) {
        diagnosis.remarks.push_back("no work of a GPU was recorded: nothing can be said about it");
        return diagnosis;
    }
    const Study study(timeline, *launcher);
    diagnosis.kernels = table_of_kernels(study);
    diagnosis.run = ledger_of(study);
    if (study.step_count == 0) {
        diagnosis.remarks.push_back("no steps were seen: the recording is too short, or the program does not repeat itself");
        return diagnosis;
    }
    diagnosis.blocks = study.blocks;
    describe_steps(study, diagnosis);
    describe_recording(study, diagnosis);
    const Roles roles(study);
    Breakdown breakdown = divide_steps(study, roles);
    diagnosis.breakdown_ms = breakdown.ms;
    diagnosis.busy_share = breakdown.busy_share;
    const auto undisturbed =
        study.undisturbed_evaluation_ms ? *study.undisturbed_ms + *study.undisturbed_evaluation_ms : study.undisturbed_ms;
    const double recorded = study.recorded_ms + (study.undisturbed_evaluation_ms ? study.evaluation_ms : 0);
    diagnosis.overhead_share = overhead_share(timeline, launcher->process, recorded, undisturbed, study.presence_ms);
    diagnosis.evaluation_ms = sum_of(breakdown.evaluation_ms);
    diagnosis.typical = std::move(breakdown.typical);
    diagnosis.worst = std::move(breakdown.worst);
    Chart chart(study, roles);
    const double sum = sum_of(breakdown.ms);
    const double pauses = sum > 0 ? breakdown.ms[index_of(Owner::kOther)] / sum : 0;
    examine(chart, breakdown, pauses);
    diagnosis.findings = std::move(chart.findings);
    if (study.unseen) diagnosis.remarks.push_back(remark_of(*study.unseen, study));
    diagnosis.remarks.insert(diagnosis.remarks.end(), chart.remarks.begin(), chart.remarks.end());
    diagnosis.healthy = !has_warnings(diagnosis);
    // What recording added may be in either: first in pauses.
    const double added = added_by_recording_ms(diagnosis), step = sum - added;
    const double paused = std::max(0.0, pauses * sum - added), other = std::max(0.0, added - pauses * sum);
    if (paused > kMuchIdle * step)
        diagnosis.remarks.push_back(
            fmt::format("the GPU pauses {:.0f} % of the step between kernels that were queued in time: fewer, larger ones "
                        "(fused, or with more work each) would use it better",
                        100 * paused / step));
    const double unused = 1 - diagnosis.busy_share - pauses, idle = step > 0 ? (unused * sum - other) / step : unused;
    if (diagnosis.healthy && idle > kMuchIdle) {
        diagnosis.healthy = false;
        diagnosis.remarks.push_back(fmt::format("the GPU idles {:.0f} % of the step and no cause was found", 100 * idle));
    }
    return diagnosis;
}

}  // namespace millrace::diagnose
