// What the device could do better: tensor cores, a fuller chip, memory, clocks.

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "diagnose/findings/findings.h"
#include "diagnose/reading/machine_rows.h"

namespace millrace::diagnose {
namespace {

/// A matrix kernel of the steps.
struct Product {
    std::size_t lane = 0;
    std::uint32_t job = 0;
    Units units = Units::kUnsaid;
    double share = 0;  ///< of the steps
};

std::vector<Product> products_of(const Study& study) {
    std::vector<Product> products;
    study.for_each_job(&WindowSteps::steps, [&](std::size_t lane, std::uint32_t number, const Job& job) {
        const std::string& name = study.timeline.names[study.timeline.work[job.first_work].name];
        if (!job.more_work.empty() || !is_matrix_kernel(name)) return;
        products.push_back({lane, number, units_of(name), study.per_step(ms_of(job.end - job.begin)) / study.recorded_ms});
    });
    return products;
}

/// Mean of a value of the machine's samples in which the GPU works; absent without any.
std::optional<double> mean_at_work(const Study& study, std::optional<double> MachineSample::*value) {
    double sum = 0, count = 0;
    for (const MachineSample& sample : since_recorded(study.timeline))
        if (sample.gpu_utilization && *sample.gpu_utilization > 0.5 && sample.*value) sum += *(sample.*value), count += 1;
    return count > 0 ? std::optional<double>(sum / count) : std::nullopt;
}

/// Whether the user's own code asked for it: what PyTorch launches backward mirrors that, and nothing can be changed there.
bool is_asked_for(const Study& study, const Call& call) {
    if (study.places.of_stack(call.stack) == kNoPlace) return false;
    for (const Frame& frame : study.timeline.stacks[call.stack]) {
        if (is_backward(frame)) return false;
        if (is_users(frame)) break;
    }
    return true;
}

}  // namespace

MachineFigures figures_of(std::span<const MachineSample> samples) {
    MachineFigures figures;
    double utilization = 0;
    for (const MachineSample& sample : samples) {
        if (sample.gpu_utilization) utilization += *sample.gpu_utilization, figures.utilization_samples += 1;
        if (sample.memory_used_bytes && sample.memory_total_bytes && *sample.memory_total_bytes > 0)
            figures.memory_share = std::max(figures.memory_share, *sample.memory_used_bytes / *sample.memory_total_bytes);
        if (!sample.throttled) continue;
        figures.throttle_samples += 1;
        if (!*sample.throttled) continue;
        const auto says = [&](const char* word) { return sample.throttle_reason.find(word) != std::string::npos; };
        if (says("thermal") || says("hardware")) {
            figures.slow_moments.push_back(sample.time);
            figures.slow_reason = sample.throttle_reason;
        } else {
            figures.capped += 1;
        }
    }
    if (figures.utilization_samples > 0) figures.utilization = std::clamp(utilization / figures.utilization_samples, 0.0, 1.0);
    return figures;
}

std::optional<Finding> memory_edge(const MachineFigures& figures, std::size_t failed, const char* fix) {
    const double most = figures.memory_share;
    if (most < kPolicy.band(Kind::kMemoryEdge).warn && failed == 0) return std::nullopt;
    std::string evidence;
    if (most > 0) evidence = fmt::format("Up to {:.1f} % of the device's memory was in use.", 100 * most);
    if (failed > 0)
        evidence += fmt::format("{}{} allocations failed and were tried again after a flush.", most > 0 ? " " : "", failed);
    return Finding{{"Device memory is nearly full: a longer batch may end the run.", evidence, fix, {}},
                   Kind::kMemoryEdge,
                   failed > 0 || most >= kPolicy.band(Kind::kMemoryEdge).critical ? Severity::kWarning : Severity::kNote};
}

std::optional<Finding> throttled(const MachineFigures& figures) {
    const double share = figures.slowed_share();
    if (share < kPolicy.band(Kind::kThrottled).warn) return std::nullopt;
    return Finding{
        {"The GPU slows itself down.",
         fmt::format("{:.0f} % of the samples report: {}.", 100 * share, figures.slow_reason),
         "Look after cooling (fans, dust, neighbours in the rack) or lower the power limit to a steady one (`nvidia-smi -pl`).",
         {}},
        Kind::kThrottled,
        severity_of(share, kPolicy.band(Kind::kThrottled))};
}

Severity severity_of(double share, const Band& band) {
    return share >= band.critical ? Severity::kCritical : share >= band.warn ? Severity::kWarning : Severity::kNote;
}

void find_missing_tensor_cores(Chart& chart) {
    const Study& study = chart.study;
    const auto active = mean_at_work(study, &MachineSample::tensor_active);
    const std::vector<Product> products = products_of(study);
    double matrix = 0, plain = 0, accused = 0;
    for (const Product& product : products) {
        matrix += product.share;
        if (product.units == Units::kPlain) plain += product.share;
    }
    if (matrix < kPolicy.matrix_share) return;
    // The counter is a mean over the time without products, too.
    const bool by_counter = active && *active < kPolicy.tensor_active * matrix;
    std::vector<std::vector<std::uint32_t>> jobs(study.lanes.size());
    std::map<std::uint32_t, double> asking, launching;
    for (const Product& product : products) {
        // The counter speaks for products whose names say nothing.
        if (product.units == Units::kTensor || (product.units == Units::kUnsaid && !by_counter)) continue;
        jobs[product.lane].push_back(product.job);
        const Job& job = study.lanes[product.lane].jobs[product.job];
        accused += product.share;
        const std::uint32_t place = study.place_of(product.lane, job);
        if (place != kNoPlace)
            (is_asked_for(study, study.call(product.lane, job.call)) ? asking : launching)[place] += product.share;
    }
    if (accused < kPolicy.matrix_share) return;
    if (active && !by_counter && plain < 0.5 * matrix) return;
    const double speedup = kPolicy.tensor_core_speedup;
    const Cure cure = [&jobs, speedup](std::size_t lane, Model& model) {
        for (std::uint32_t job : jobs[lane])
            model.tasks[job].duration = static_cast<Time>(static_cast<double>(model.tasks[job].duration) / speedup);
    };
    const double lost = chart.cost_of(cure);
    const std::uint32_t asks = key_with_most(asking), place = asks != kNoPlace ? asks : key_with_most(launching);
    if (chart.share(lost) < kAny.warn) return;
    std::string evidence = fmt::format("{:.0f} % of the step are matrix kernels", 100 * matrix);
    if (active) evidence += fmt::format("; the tensor cores are active {:.1f} % of the time", 100 * *active);
    if (plain > 0) evidence += fmt::format("; {:.0f} % are kernels for plain FP32", 100 * plain);
    chart.findings.push_back(
        chart.finding(Kind::kNoTensorCores, place, lost,
                      {"Matrix products run without the tensor cores.", evidence + ".", chart.advice(Topic::kPrecision),
                       fmt::format("TF32 products are {:.0f} times as fast, and its ten bits of mantissa suffice", speedup)},
                      by_counter ? 1 : 0.8));
}

void find_small_batch(Chart& chart, double occupied_share) {
    const Study& study = chart.study;
    const auto active = mean_at_work(study, &MachineSample::sm_active);
    const double used = figures_of(since_recorded(study.timeline)).memory_share;
    if (!active || used == 0) return;
    if (occupied_share < 1 - kPolicy.small_batch_idle || *active > kPolicy.small_batch_sm_active) return;
    if (1 - used < kPolicy.small_batch_headroom) return;
    Finding finding = chart.finding(
        Kind::kSmallBatch, kNoPlace, 0,
        {"Kernels are too small for the GPU: most of its multiprocessors have nothing to do.",
         fmt::format(
             "Multiprocessors are active {:.0f} % of the time although the GPU has work in {:.0f} % of it; {:.0f} % of the "
             "memory is free.",
             100 * *active, 100 * occupied_share, 100 * (1 - used)),
         "Try twice the batch and compare samples per second; mind the learning rate, larger batches may need more epochs.",
         "twice the batch takes no longer until the chip is full"},
        0.6);
    finding.gain_upper_bound = 1 - *active;
    chart.findings.push_back(std::move(finding));
}

void find_machine_limits(Chart& chart) {
    const Study& study = chart.study;
    const MachineFigures figures = figures_of(since_recorded(study.timeline));
    const auto enter = [&](Finding&& finding) {
        finding.confidence = chart.confidence();
        chart.findings.push_back(std::move(finding));
    };
    if (const double capped = figures.capped / std::max(1.0, figures.throttle_samples); capped >= 0.5)
        chart.remarks.push_back(
            fmt::format("the GPU ran at its power limit in {:.0f} % of the samples: it gives what it may", 100 * capped));
    if (auto finding = throttled(figures)) {
        std::vector<Block> hot, others;
        for (const Block& block : study.timeline.blocks) {
            const auto lies_in = [&](Time moment) { return moment >= block.begin && moment < block.end; };
            (std::ranges::any_of(figures.slow_moments, lies_in) ? hot : others).push_back(block);
        }
        const BlockSpeed slow = speed_of(hot), free = speed_of(others);
        if (slow.steps > 0 && free.steps > 0) {
            const double with = slow.ms / slow.steps, without = free.ms / free.steps;
            chart.rate(*finding, std::max(0.0, with - without) * figures.slowed_share());
            finding->evidence += fmt::format(" Steps take {:.2f} ms then and {:.2f} ms else.", with, without);
        } else {
            finding->evidence += " What that costs could not be measured: there are no steps without it.";
        }
        finding->assumption = "the clock stays where it is without slowing down";
        enter(std::move(*finding));
    }
    const auto failed = std::ranges::count_if(study.timeline.calls, [&](const Call& call) {
        return call.process == study.launcher.process && call.kind == CallKind::kAlloc && call.failed;
    });
    if (auto finding = memory_edge(figures, static_cast<std::size_t>(failed), chart.advice(Topic::kMemory)))
        enter(std::move(*finding));
}

}  // namespace millrace::diagnose
