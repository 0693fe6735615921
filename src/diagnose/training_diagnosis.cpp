#include "diagnose/training_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::diagnose {

namespace {

constexpr double kFewestSamples = 3;  ///< one reading is an anecdote
constexpr double kBusy = 0.85;

/// What the blocks say about a step, in milliseconds; weighted by their steps.
struct Steps {
    double count = 0, mean = 0, median = 0;
    std::optional<double> wait;
};

Steps steps_of(const Timeline& timeline) {
    Steps steps;
    std::vector<std::pair<double, double>> lengths;  // of a step, steps of that length
    double total = 0, wait = 0, waited = 0;
    for (const Block& block : timeline.blocks) {
        const double length = static_cast<double>(block.end - block.begin) * 1e-6;
        if (!(block.steps > 0) || !(length > 0)) continue;
        steps.count += block.steps;
        total += length;
        lengths.emplace_back(length / block.steps, block.steps);
        if (!block.loader_wait_ms) continue;
        wait += *block.loader_wait_ms * block.steps;
        waited += block.steps;
    }
    if (lengths.empty()) return steps;
    steps.mean = total / steps.count;
    if (waited > 0) steps.wait = std::min(wait / waited, steps.mean);
    std::ranges::sort(lengths);
    double seen = 0;
    for (const auto& [length, count] : lengths) {
        steps.median = length;
        if ((seen += count) >= steps.count / 2) break;
    }
    return steps;
}

/// What samples of the machine say, as far as they have it.
struct Machine {
    double utilization = 0, utilization_samples = 0, memory_peak = 0;
    double throttle_samples = 0, slowed = 0;
    std::string reason;
};

Machine machine_of(const Timeline& timeline) {
    Machine machine;
    for (const MachineSample& sample : timeline.machine) {
        if (sample.gpu_utilization) {
            machine.utilization += *sample.gpu_utilization;
            machine.utilization_samples += 1;
        }
        if (sample.memory_used_bytes && sample.memory_total_bytes && *sample.memory_total_bytes > 0)
            machine.memory_peak = std::max(machine.memory_peak, *sample.memory_used_bytes / *sample.memory_total_bytes);
        if (!sample.throttled) continue;
        machine.throttle_samples += 1;
        // A power cap is how a full GPU looks.
        const auto says = [&](const char* word) { return sample.throttle_reason.find(word) != std::string::npos; };
        if (!*sample.throttled || !(says("thermal") || says("hardware"))) continue;
        machine.slowed += 1;
        machine.reason = sample.throttle_reason;
    }
    if (machine.utilization_samples > 0) machine.utilization /= machine.utilization_samples;
    machine.utilization = std::clamp(machine.utilization, 0.0, 1.0);
    return machine;
}

Finding loader_finding(const Steps& steps, const Policy& policy) {
    const double share = *steps.wait / steps.mean;
    Finding finding;
    finding.kind = Kind::kLoaderWait;
    finding.severity = share >= policy.loader_wait.critical ? Severity::kCritical : Severity::kWarning;
    finding.lost_ms_per_step = *steps.wait;
    finding.gain_upper_bound = share;
    finding.assumption = "batches are ready whenever a step asks for one";
    finding.confidence = 0.8;
    finding.what = "Steps wait for their data.";
    finding.evidence = fmt::format("A step takes {:.3g} ms on average and waits {:.3g} ms of it ({:.0f} %) for its batch.",
                                   steps.mean, *steps.wait, 100 * share);
    finding.fix =
        "Use a data set that fits the device's memory, a faster disk or a smaller train.batch; events.jsonl says what the "
        "machine did in the longest waits.";
    return finding;
}

void judge_machine(const Machine& machine, const Policy& policy, Diagnosis& diagnosis) {
    if (machine.memory_peak >= policy.memory_edge.warn) {
        Finding finding;
        finding.kind = Kind::kMemoryEdge;
        finding.severity = machine.memory_peak >= policy.memory_edge.critical ? Severity::kWarning : Severity::kNote;
        finding.confidence = 0.9;
        finding.what = "Device memory is nearly full: a longer batch may end the run.";
        finding.evidence = fmt::format("Up to {:.1f} % of the device's memory was in use.", 100 * machine.memory_peak);
        finding.fix = "Lower train.batch, eval.batch or members, or find who else is on the GPU with nvidia-smi.";
        diagnosis.findings.push_back(std::move(finding));
    }
    if (machine.throttle_samples >= kFewestSamples && machine.slowed / machine.throttle_samples >= policy.throttled.warn) {
        const double share = machine.slowed / machine.throttle_samples;
        Finding finding;
        finding.kind = Kind::kThrottled;
        finding.severity = share >= policy.throttled.critical ? Severity::kCritical : Severity::kWarning;
        finding.confidence = 0.9;
        finding.what = "The GPU slows itself down.";
        finding.evidence = fmt::format("{:.0f} % of the samples report: {}.", 100 * share, machine.reason);
        finding.fix =
            "Look after cooling (fans, dust, neighbours in the rack) or lower the power limit to a steady one (`nvidia-smi "
            "-pl`).";
        diagnosis.findings.push_back(std::move(finding));
    }
}

}  // namespace

Diagnosis diagnose_training(const Timeline& timeline, const Policy& policy) {
    Diagnosis diagnosis;
    diagnosis.title = timeline.title;
    diagnosis.device_name = timeline.device_name;
    diagnosis.dropped_records = timeline.dropped;
    diagnosis.remarks = timeline.remarks;
    const Steps steps = steps_of(timeline);
    const Machine machine = machine_of(timeline);
    diagnosis.steps = static_cast<std::uint64_t>(std::min(steps.count, 1e15));
    diagnosis.step_ms = steps.median;
    if (timeline.device_name.empty() && machine.utilization_samples == 0) {
        diagnosis.steps = 0;
        diagnosis.remarks.insert(diagnosis.remarks.begin(),
                                 "the run trained on the CPU: there is no GPU whose time could be divided");
        return diagnosis;
    }
    if (diagnosis.steps == 0) diagnosis.remarks.emplace_back("no steps were seen: the run ended before its first row of metrics");

    const auto part = [&](Owner owner) -> double& { return diagnosis.breakdown_ms[static_cast<std::size_t>(owner)]; };
    const double wait = steps.wait.value_or(0);
    part(Owner::kLoaderWait) = wait;
    if (machine.utilization_samples >= kFewestSamples) {
        diagnosis.busy_share = machine.utilization;
        part(Owner::kCompute) = std::min(machine.utilization * steps.mean, steps.mean - wait);
        if (machine.utilization < 0.3)
            diagnosis.remarks.push_back(
                fmt::format("the GPU had a kernel in {:.0f} % of the time alone", 100 * machine.utilization));
    } else {
        diagnosis.busy_share = std::numeric_limits<double>::quiet_NaN();
        diagnosis.remarks.emplace_back("the GPU's use was not sampled: how busy it was is not known");
    }
    part(Owner::kUnexplained) = steps.mean - part(Owner::kLoaderWait) - part(Owner::kCompute);

    if (steps.mean > 0 && wait / steps.mean >= policy.loader_wait.warn)
        diagnosis.findings.push_back(loader_finding(steps, policy));
    judge_machine(machine, policy, diagnosis);
    std::ranges::stable_sort(diagnosis.findings, std::ranges::greater{}, &Finding::lost_ms_per_step);
    const bool warned =
        std::ranges::any_of(diagnosis.findings, [](const Finding& finding) { return finding.severity != Severity::kNote; });
    // Without a trace a GPU that idles cannot be told from one that is kept waiting: no clean bill for it.
    const bool busy = machine.utilization_samples >= kFewestSamples && machine.utilization >= kBusy;
    diagnosis.healthy = diagnosis.steps > 0 && !warned && busy;
    return diagnosis;
}

}  // namespace millrace::diagnose
