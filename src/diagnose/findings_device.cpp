// What the device could do better: tensor cores, a fuller chip, memory, clocks.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "diagnose/findings.h"
#include "diagnose/kernel_names.h"
#include "diagnose/machine_rows.h"

namespace millrace::diagnose {
namespace {

struct Product {
    std::size_t lane = 0;
    std::uint32_t job = 0;
    Units units = Units::kUnsaid;
};

/// Matrix kernels of the steps.
struct Products {
    explicit Products(const Study& study) {
        for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
            for (const Step& step : study.steps[lane].steps) {
                steps += static_cast<double>(step.end - step.begin);
                for (std::uint32_t i = step.first_job; i < step.end_job; ++i) {
                    const Job& job = study.lanes[lane].jobs[i];
                    const std::string& name = study.timeline.names[study.timeline.work[job.first_work].name];
                    if (!job.more_work.empty() || !is_matrix_kernel(name)) continue;
                    all.push_back({lane, i, units_of(name)});
                    const auto time = static_cast<double>(job.end - job.begin);
                    matrix += time;
                    if (all.back().units == Units::kPlain) plain += time;
                }
            }
    }

    std::vector<Product> all;
    double matrix = 0, plain = 0, steps = 0;  ///< nanoseconds
};

/// Mean of a value of the machine's samples that has it; absent without any.
template <typename Get>
std::optional<double> mean_of(const Study& study, Get get) {
    double sum = 0, count = 0;
    for (const MachineSample& sample : since_recorded(study.timeline))
        if (const std::optional<double> value = get(sample)) sum += *value, count += 1;
    return count > 0 ? std::optional<double>(sum / count) : std::nullopt;
}

/// Whether the user's own code asked for it: what PyTorch launches backward mirrors that, and nothing can be changed there.
bool is_asked_for(const Study& study, const Call& call) {
    if (study.places.of_stack(call.stack) == kNoPlace) return false;
    for (const Frame& frame : study.timeline.stacks[call.stack]) {
        if (is_backward(frame)) return false;
        if (!frame.native && !is_library(frame.file)) break;
    }
    return true;
}

bool works(const MachineSample& sample) { return sample.gpu_utilization && *sample.gpu_utilization > 0.5; }

}  // namespace

void find_missing_tensor_cores(Chart& chart) {
    const Study& study = chart.study;
    const auto active =
        mean_of(study, [](const MachineSample& sample) { return works(sample) ? sample.tensor_active : std::nullopt; });
    const Products products(study);
    const double matrix = products.matrix, plain = products.plain, total = products.steps;
    if (total <= 0 || matrix / total < study.policy.matrix_share) return;
    // The counter is a mean over the time without products, too.
    const bool by_counter = active && *active < study.policy.tensor_active * matrix / total;
    std::vector<std::vector<std::uint32_t>> jobs(study.lanes.size());
    std::map<std::uint32_t, double> asking, launching;
    double accused = 0;
    for (const Product& product : products.all) {
        // The counter speaks for products whose names say nothing.
        if (product.units == Units::kTensor || (product.units == Units::kUnsaid && !by_counter)) continue;
        jobs[product.lane].push_back(product.job);
        const Job& job = study.lanes[product.lane].jobs[product.job];
        const auto time = static_cast<double>(job.end - job.begin);
        accused += time;
        if (job.call == kNoIndex || study.call(product.lane, job.call).stack == kNoStack) continue;
        auto& places = is_asked_for(study, study.call(product.lane, job.call)) ? asking : launching;
        places[study.host.place_of(product.lane, job.call)] += time;
    }
    if (accused / total < study.policy.matrix_share) return;
    if (active && !by_counter && plain < 0.5 * matrix) return;
    const double speedup = study.policy.tensor_core_speedup;
    const Cure cure = [&jobs, speedup](std::size_t lane, Model& model) {
        for (std::uint32_t job : jobs[lane])
            model.tasks[job].duration = static_cast<Time>(static_cast<double>(model.tasks[job].duration) / speedup);
    };
    const double lost = chart.cost_of(cure);
    const std::uint32_t asks = place_with_most(asking), place = asks != kNoPlace ? asks : place_with_most(launching);
    if (chart.share(lost) < study.policy.launch_bound.warn) return;
    Finding finding = chart.finding(Kind::kNoTensorCores, place, lost, study.policy.launch_bound);
    finding.what = "Matrix products run without the tensor cores.";
    finding.evidence = fmt::format("{:.0f} % of the step are matrix kernels", 100 * matrix / total);
    if (active) finding.evidence += fmt::format("; the tensor cores are active {:.1f} % of the time", 100 * *active);
    if (plain > 0) finding.evidence += fmt::format("; {:.0f} % are kernels for plain FP32", 100 * plain / total);
    finding.evidence += ".";
    finding.fix = chart.advice(Topic::kPrecision);
    finding.assumption = fmt::format("TF32 products are {:.0f} times as fast, and its ten bits of mantissa suffice", speedup);
    finding.confidence *= by_counter ? 1.0 : 0.8;
    chart.findings.push_back(std::move(finding));
}

void find_small_batch(Chart& chart, double occupied_share) {
    const Study& study = chart.study;
    const Policy& policy = study.policy;
    const auto active =
        mean_of(study, [](const MachineSample& sample) { return works(sample) ? sample.sm_active : std::nullopt; });
    double used = 0, all = 0;
    for (const MachineSample& sample : since_recorded(study.timeline))
        if (sample.memory_used_bytes && sample.memory_total_bytes && *sample.memory_total_bytes > 0)
            used = std::max(used, *sample.memory_used_bytes), all = *sample.memory_total_bytes;
    if (!active || all == 0) return;
    if (occupied_share < 1 - policy.small_batch_idle || *active > policy.small_batch_sm_active) return;
    if (1 - used / all < policy.small_batch_headroom) return;
    Finding finding = chart.finding(Kind::kSmallBatch, kNoPlace, 0, policy.launch_bound);
    finding.gain_upper_bound = 1 - *active;
    finding.what = "Kernels are too small for the GPU: most of its multiprocessors have nothing to do.";
    finding.evidence = fmt::format(
        "Multiprocessors are active {:.0f} % of the time although the GPU has work in {:.0f} % of it; {:.0f} % of the memory is "
        "free.",
        100 * *active, 100 * occupied_share, 100 * (1 - used / all));
    finding.fix =
        "Try twice the batch and compare samples per second; mind the learning rate, larger batches may need more epochs.";
    finding.assumption = "twice the batch takes no longer until the chip is full";
    finding.confidence *= 0.6;
    chart.findings.push_back(std::move(finding));
}

void find_memory_edge(Chart& chart) {
    const Study& study = chart.study;
    double most = 0;
    for (const MachineSample& sample : since_recorded(study.timeline))
        if (sample.memory_used_bytes && sample.memory_total_bytes && *sample.memory_total_bytes > 0)
            most = std::max(most, *sample.memory_used_bytes / *sample.memory_total_bytes);
    std::size_t failed = 0;
    for (const Call& call : study.timeline.calls)
        if (call.process == study.launcher.process && call.kind == CallKind::kAlloc && call.failed) ++failed;
    if (most < study.policy.memory_edge.warn && failed == 0) return;
    Finding finding = chart.finding(Kind::kMemoryEdge, kNoPlace, 0, study.policy.launch_bound);
    finding.severity = failed > 0 || most >= study.policy.memory_edge.critical ? Severity::kWarning : Severity::kNote;
    finding.gain_upper_bound = std::nullopt;
    finding.what = "Device memory is nearly full: a longer batch may end the run, and the allocator flushes its cache.";
    finding.evidence = most > 0 ? fmt::format("Up to {:.1f} % of the device's memory was in use.", 100 * most) : "";
    if (failed > 0)
        finding.evidence +=
            fmt::format("{}{} allocations failed and were tried again after a flush.", most > 0 ? " " : "", failed);
    finding.fix = chart.advice(Topic::kMemory);
    finding.assumption = "";
    chart.findings.push_back(std::move(finding));
}

void find_throttling(Chart& chart) {
    const Study& study = chart.study;
    double known = 0, slowed = 0, capped = 0;
    std::string reason;
    std::vector<Time> slow_times;
    for (const MachineSample& sample : since_recorded(study.timeline)) {
        if (!sample.throttled) continue;
        known += 1;
        if (!*sample.throttled) continue;
        // A power cap is how a full GPU looks; heat and the board's own brakes are not.
        if (sample.throttle_reason.find("thermal") == std::string::npos &&
            sample.throttle_reason.find("hardware") == std::string::npos) {
            capped += 1;
            continue;
        }
        slowed += 1;
        reason = sample.throttle_reason;
        slow_times.push_back(sample.time);
    }
    if (known == 0) return;
    if (capped / known >= 0.5)
        chart.remarks.push_back(
            fmt::format("the GPU ran at its power limit in {:.0f} % of the samples: it gives what it may", 100 * capped / known));
    if (slowed / known < study.policy.throttled.warn) return;
    // Blocks of steps with and without.
    double slow_ms = 0, slow_steps = 0, free_ms = 0, free_steps = 0;
    for (const Block& block : study.timeline.blocks) {
        const bool hot =
            std::any_of(slow_times.begin(), slow_times.end(), [&](Time t) { return t >= block.begin && t < block.end; });
        (hot ? slow_ms : free_ms) += static_cast<double>(block.end - block.begin) * 1e-6;
        (hot ? slow_steps : free_steps) += block.steps;
    }
    double lost = 0;
    const bool measured = slow_steps > 0 && free_steps > 0;
    if (measured) lost = std::max(0.0, slow_ms / slow_steps - free_ms / free_steps) * slowed / known;
    Finding finding = chart.finding(Kind::kThrottled, kNoPlace, lost, study.policy.launch_bound);
    finding.severity = slowed / known >= study.policy.throttled.critical ? Severity::kCritical : Severity::kWarning;
    if (!measured) finding.gain_upper_bound = std::nullopt;
    finding.what = "The GPU slows itself down.";
    finding.evidence = fmt::format("{:.0f} % of the samples report: {}.", 100 * slowed / known, reason);
    finding.evidence +=
        measured ? fmt::format(" Steps take {:.2f} ms then and {:.2f} ms else.", slow_ms / slow_steps, free_ms / free_steps)
                 : " What that costs could not be measured: there are no steps without it.";
    finding.fix =
        "Look after cooling (fans, dust, neighbours in the rack) or lower the power limit to a steady one (`nvidia-smi -pl`).";
    finding.assumption = "the clock stays where it is without slowing down";
    chart.findings.push_back(std::move(finding));
}

}  // namespace millrace::diagnose
