#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "diagnose/diagnose.h"
#include "diagnose/findings/machine_figures.h"
#include "diagnose/replay/pace.h"

namespace millrace::diagnose {
namespace {

constexpr double kFewestSamples = 3;  ///< one reading is an anecdote
constexpr double kBusy = 0.85;

Finding loader_finding(double step_ms, double wait_ms) {
    const double share = wait_ms / step_ms;
    Finding finding;
    finding.kind = Kind::kLoaderWait;
    finding.severity = severity_of(share, kPolicy.loader_wait);
    finding.lost_ms_per_step = wait_ms;
    finding.gain_upper_bound = share;
    finding.assumption = "batches are ready whenever a step asks for one";
    finding.confidence = 0.8;
    finding.what = "Steps wait for their data.";
    finding.evidence = fmt::format("A step takes {:.3g} ms on average and waits {:.3g} ms of it ({:.0f} %) for its batch.",
                                   step_ms, wait_ms, 100 * share);
    finding.fix =
        "Use a data set that fits the device's memory, a faster disk or a smaller train.batch; events.jsonl says what the "
        "machine did in the longest waits.";
    return finding;
}

void judge_machine(const MachineFigures& machine, Diagnosis& diagnosis) {
    const auto add = [&](std::optional<Finding> finding) {
        if (!finding) return;
        finding->confidence = 0.9;
        diagnosis.findings.push_back(std::move(*finding));
    };
    add(memory_edge(machine, 0, "Lower train.batch, eval.batch or members, or find who else is on the GPU with nvidia-smi."));
    if (machine.throttle_samples >= kFewestSamples) add(throttled(machine));
}

}  // namespace

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

    if (mean > 0 && wait / mean >= kPolicy.loader_wait.warn) diagnosis.findings.push_back(loader_finding(mean, wait));
    judge_machine(machine, diagnosis);
    // Without a trace a GPU that idles cannot be told from one that is kept waiting: no clean bill for it.
    diagnosis.healthy = diagnosis.steps > 0 && !has_warnings(diagnosis) && sampled && *machine.utilization >= kBusy;
    return diagnosis;
}

}  // namespace millrace::diagnose
