#include "diagnose/diagnose.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "diagnose/compare/statistics.h"
#include "diagnose/findings/findings.h"
#include "diagnose/overview/overview.h"
#include "diagnose/reading/sound.h"

namespace millrace::diagnose {
namespace {

constexpr double kFewestSamples = 3;  ///< one reading is an anecdote
constexpr double kBusy = 0.85;
constexpr double kMuchIdle = 0.15;  ///< a GPU that idles more, for no known reason, is no clean bill; nor are such pauses unsaid

void describe_steps(const Study& study, Diagnosis& diagnosis) {
    for (const WindowSteps& window : study.steps)
        for (const Step& step : window.steps) diagnosis.recorded.emplace_back(step.begin, step.end);
    diagnosis.blocks = study.blocks;
    diagnosis.steps = study.step_count;
    diagnosis.step_ms = ms_of(median_of(study.lengths));
    diagnosis.undisturbed_step_ms = study.undisturbed_ms;
    diagnosis.costed_step_ms = study.costed_ms();
    diagnosis.unseen_loading_ms = study.unseen_loading_ms();
    diagnosis.undisturbed_evaluation_ms = study.undisturbed_evaluation_ms;
    if (const auto pace = study.pace(); pace && *pace > 0) diagnosis.window_overhead_share = std::max(0.0, 1 / *pace - 1);
}

/// What a reader of costs should know about the recording.
void add_remarks(const Study& study, std::vector<std::string>& remarks) {
    const bool whole = study.is_shapeless();
    const auto say = [&](bool holds, auto text, const auto&... values) {
        if (holds) remarks.push_back(fmt::format(fmt::runtime(text), values...));
    };
    say(whole, "no step returns in the sequence of launches: a window counts as one step");
    say(std::ranges::find(study.steps, StepSource::kRanges, &WindowSteps::source) != study.steps.end(),
        "steps are those that the program or its profiler marked");
    say(study.steps.size() <= 1 && !whole && study.step_count < kPolicy.few_steps,
        "only {} steps were seen: record a longer run for surer findings", study.step_count);
    say(study.blocks.empty() && !study.timeline.blocks.empty(),
        "steps counted outside of windows are not those in windows: the pace without recording is not known");
    say(study.replay_error > kPolicy.replay_error, "the replay of the recording is off by {:.0f} %: costs are less sure",
        100 * study.replay_error);
    say(study.is_profiled(),
        "noting calls, operators and functions made a step of {:.1f} ms out of one of {:.1f} ms, which costs are of; record with "
        "`millrace record`, or without with_stack, for surer ones",
        study.recorded_ms, study.base_ms);
    say(study.shapeless > 0, "in {} of {} windows no step returns as in the others: they were left out", study.shapeless,
        study.lanes.size());
    say(study.timeline.dropped > 0, "{} records were lost: costs may be too low", study.timeline.dropped);
    say(study.timeline.samples.empty() && study.timeline.source == Source::kRecording,
        "the host was not sampled: loader waits, file output and Python work cannot be told apart");
    bool calls = false;
    std::size_t rejoined = 0;
    for (const Lane& lane : study.lanes) calls = calls || !lane.calls.empty(), rejoined += lane.rejoined;
    say(rejoined > 0, "{} jobs came with the number of another call and were joined by order", rejoined);
    say(!calls, "no calls were recorded: idle time stays unexplained");
}

Finding loader_finding(double step_ms, double wait_ms) {
    const double share = wait_ms / step_ms;
    Finding finding{{"Steps wait for their data.",
                     fmt::format("A step takes {:.3g} ms on average and waits {:.3g} ms of it ({:.0f} %) for its batch.", step_ms,
                                 wait_ms, 100 * share),
                     "Use a data set that fits the device's memory, a faster disk or a smaller train.batch; events.jsonl says "
                     "what the machine did in the longest waits.",
                     "batches are ready whenever a step asks for one"},
                    Kind::kLoaderWait,
                    severity_of(share, kPolicy.band(Kind::kLoaderWait))};
    finding.lost_ms_per_step = wait_ms;
    finding.gain_upper_bound = share;
    finding.confidence = 0.8;
    return finding;
}

/// Without anything that is found out: title, device, remarks, lost records.
Diagnosis head_of(const Timeline& timeline) {
    Diagnosis diagnosis;
    diagnosis.title = timeline.title;
    diagnosis.device_name = timeline.device_name;
    diagnosis.dropped_records = timeline.dropped;
    diagnosis.remarks = timeline.remarks;
    return diagnosis;
}

/// Whether a finding is more than a note.
bool has_warnings(const Diagnosis& diagnosis) {
    return std::ranges::any_of(diagnosis.findings, [](const Finding& each) { return each.severity != Severity::kNote; });
}

/// Of a run of `train`, which has no trace: step time, the loader's wait, use of the GPU, memory at its edge, a GPU that
/// slows itself down. Whatever needs calls or kernels is left unsaid.
Diagnosis diagnose_training(const Timeline& timeline) {
    Diagnosis diagnosis = head_of(timeline);
    const BlockSpeed speed = speed_of(timeline.blocks);
    const MachineFigures machine = figures_of(timeline.machine);
    diagnosis.steps = static_cast<std::uint64_t>(std::min(speed.steps, 1e15));
    diagnosis.step_ms = speed.median_ms;
    if (timeline.device_name.empty() && !machine.utilization) {
        diagnosis.steps = 0;
        diagnosis.remarks.insert(diagnosis.remarks.begin(),
                                 "the run trained on the CPU: there is no GPU whose time could be divided");
        return diagnosis;
    }
    if (diagnosis.steps == 0) diagnosis.remarks.emplace_back("no steps were seen: the run ended before its first row of metrics");

    const auto part = [&](Owner owner) -> double& { return diagnosis.breakdown_ms[index_of(owner)]; };
    const double mean = speed.steps > 0 ? speed.ms / speed.steps : 0, wait = std::min(speed.wait_ms.value_or(0), mean);
    part(Owner::kLoaderWait) = wait;
    const bool sampled = machine.utilization_samples >= kFewestSamples;
    if (sampled) {
        diagnosis.busy_share = *machine.utilization;
        part(Owner::kCompute) = std::min(*machine.utilization * mean, mean - wait);
        if (*machine.utilization < 0.3)
            diagnosis.remarks.push_back(
                fmt::format("the GPU had a kernel in {:.0f} % of the time alone", 100 * *machine.utilization));
    } else {
        diagnosis.busy_share = std::numeric_limits<double>::quiet_NaN();
        diagnosis.remarks.emplace_back("the GPU's use was not sampled: how busy it was is not known");
    }
    part(Owner::kUnexplained) = mean - part(Owner::kLoaderWait) - part(Owner::kCompute);

    if (mean > 0 && wait / mean >= kPolicy.band(Kind::kLoaderWait).warn) diagnosis.findings.push_back(loader_finding(mean, wait));
    const auto add = [&](std::optional<Finding> finding) {
        if (!finding) return;
        finding->confidence = 0.9;
        diagnosis.findings.push_back(std::move(*finding));
    };
    add(memory_edge(machine, 0, "Lower train.batch, eval.batch or members, or find who else is on the GPU with nvidia-smi."));
    if (machine.throttle_samples >= kFewestSamples) add(throttled(machine));
    // Without a trace a GPU that idles cannot be told from one that is kept waiting: no clean bill for it.
    diagnosis.healthy = diagnosis.steps > 0 && !has_warnings(diagnosis) && sampled && *machine.utilization >= kBusy;
    return diagnosis;
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
    describe_steps(study, diagnosis);
    add_remarks(study, diagnosis.remarks);
    const Roles roles(study);
    divide_steps(study, roles, diagnosis);
    const auto undisturbed =
        study.undisturbed_evaluation_ms ? *study.undisturbed_ms + *study.undisturbed_evaluation_ms : study.undisturbed_ms;
    const double recorded = study.recorded_ms + (study.undisturbed_evaluation_ms ? study.evaluation_ms : 0);
    diagnosis.overhead_share = overhead_share(timeline, launcher->process, recorded, undisturbed, study.presence_ms);
    if (study.unseen) diagnosis.remarks.push_back(remark_of(*study.unseen, study));
    const double sum = sum_of(diagnosis.breakdown_ms);
    const double pauses = sum > 0 ? diagnosis.breakdown_ms[index_of(Owner::kOther)] / sum : 0;
    Chart chart{study, roles, framework_of(timeline, *launcher), diagnosis};
    examine(chart, pauses);
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
