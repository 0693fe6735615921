// What the device could do better: tensor cores, a fuller chip, memory, clocks.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "diagnose/findings/findings.h"
#include "diagnose/findings/machine_figures.h"
#include "diagnose/reading/machine_rows.h"
#include "diagnose/replay/pace.h"
#include "diagnose/timeline/kernel_names.h"

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
        study.for_each_job(&WindowSteps::steps, [&](std::size_t lane, std::uint32_t number, const Job& job) {
            const std::string& name = study.timeline.names[study.timeline.work[job.first_work].name];
            if (!job.more_work.empty() || !is_matrix_kernel(name)) return;
            all.push_back({lane, number, units_of(name)});
            const double share = study.per_step(ms_of(job.end - job.begin)) / study.recorded_ms;
            matrix += share;
            if (all.back().units == Units::kPlain) plain += share;
        });
    }

    std::vector<Product> all;
    double matrix = 0, plain = 0;  ///< shares of the steps
};

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
        if (!frame.native && !is_library(frame.file)) break;
    }
    return true;
}

}  // namespace

void find_missing_tensor_cores(Chart& chart) {
    const Study& study = chart.study;
    const auto active = mean_at_work(study, &MachineSample::tensor_active);
    const Products products(study);
    const double matrix = products.matrix, plain = products.plain;
    if (matrix < kPolicy.matrix_share) return;
    // The counter is a mean over the time without products, too.
    const bool by_counter = active && *active < kPolicy.tensor_active * matrix;
    std::vector<std::vector<std::uint32_t>> jobs(study.lanes.size());
    std::map<std::uint32_t, double> asking, launching;
    double accused = 0;
    for (const Product& product : products.all) {
        // The counter speaks for products whose names say nothing.
        if (product.units == Units::kTensor || (product.units == Units::kUnsaid && !by_counter)) continue;
        jobs[product.lane].push_back(product.job);
        const Job& job = study.lanes[product.lane].jobs[product.job];
        const double share = study.per_step(ms_of(job.end - job.begin)) / study.recorded_ms;
        accused += share;
        const std::uint32_t place = study.place_of(product.lane, job);
        if (place != kNoPlace) (is_asked_for(study, study.call(product.lane, job.call)) ? asking : launching)[place] += share;
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
    if (chart.share(lost) < kPolicy.any.warn) return;
    Finding finding = chart.finding(Kind::kNoTensorCores, place, lost);
    finding.what = "Matrix products run without the tensor cores.";
    finding.evidence = fmt::format("{:.0f} % of the step are matrix kernels", 100 * matrix);
    if (active) finding.evidence += fmt::format("; the tensor cores are active {:.1f} % of the time", 100 * *active);
    if (plain > 0) finding.evidence += fmt::format("; {:.0f} % are kernels for plain FP32", 100 * plain);
    finding.evidence += ".";
    finding.fix = chart.advice(Topic::kPrecision);
    finding.assumption = fmt::format("TF32 products are {:.0f} times as fast, and its ten bits of mantissa suffice", speedup);
    finding.confidence *= by_counter ? 1.0 : 0.8;
    chart.findings.push_back(std::move(finding));
}

void find_small_batch(Chart& chart, double occupied_share) {
    const Study& study = chart.study;
    const auto active = mean_at_work(study, &MachineSample::sm_active);
    const double used = figures_of(since_recorded(study.timeline)).memory_share;
    if (!active || used == 0) return;
    if (occupied_share < 1 - kPolicy.small_batch_idle || *active > kPolicy.small_batch_sm_active) return;
    if (1 - used < kPolicy.small_batch_headroom) return;
    Finding finding = chart.finding(Kind::kSmallBatch, kNoPlace, 0);
    finding.gain_upper_bound = 1 - *active;
    finding.what = "Kernels are too small for the GPU: most of its multiprocessors have nothing to do.";
    finding.evidence = fmt::format(
        "Multiprocessors are active {:.0f} % of the time although the GPU has work in {:.0f} % of it; {:.0f} % of the memory is "
        "free.",
        100 * *active, 100 * occupied_share, 100 * (1 - used));
    finding.fix =
        "Try twice the batch and compare samples per second; mind the learning rate, larger batches may need more epochs.";
    finding.assumption = "twice the batch takes no longer until the chip is full";
    finding.confidence *= 0.6;
    chart.findings.push_back(std::move(finding));
}

void find_memory_edge(Chart& chart) {
    const Study& study = chart.study;
    const auto failed = std::ranges::count_if(study.timeline.calls, [&](const Call& call) {
        return call.process == study.launcher.process && call.kind == CallKind::kAlloc && call.failed;
    });
    auto finding =
        memory_edge(figures_of(since_recorded(study.timeline)), static_cast<std::size_t>(failed), chart.advice(Topic::kMemory));
    if (!finding) return;
    finding->confidence = chart.confidence();
    chart.findings.push_back(std::move(*finding));
}

void find_throttling(Chart& chart) {
    const Study& study = chart.study;
    const MachineFigures figures = figures_of(since_recorded(study.timeline));
    if (const double capped = figures.capped / std::max(1.0, figures.throttle_samples); capped >= 0.5)
        chart.remarks.push_back(
            fmt::format("the GPU ran at its power limit in {:.0f} % of the samples: it gives what it may", 100 * capped));
    auto finding = throttled(figures);
    if (!finding) return;
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
    finding->confidence = chart.confidence();
    finding->assumption = "the clock stays where it is without slowing down";
    chart.findings.push_back(std::move(*finding));
}

}  // namespace millrace::diagnose
