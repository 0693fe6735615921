// Beyond the training step: evaluation, and ranks that wait for each other.

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "diagnose/findings/findings.h"

namespace millrace::diagnose {
namespace {

constexpr double kManyRounds = 2;      ///< launches of so many training steps are several batches, whatever the model
constexpr std::size_t kFewPhases = 3;  ///< how often they come cannot be told from fewer

/// What evaluations launch.
struct Rounds {
    double launches = 0;    ///< of one
    double kernel_us = 0;   ///< mean
    double steps = 0;       ///< training steps that launch as much
    double latency_ms = 0;  ///< per step, of short kernels in which they do not work yet or any more
};

Rounds rounds_of(const Study& study) {
    double kernels = 0, phases = 0, in_steps = 0, ms = 0;
    Rounds rounds;
    for (const WindowSteps& window : study.steps) {
        phases += static_cast<double>(window.evaluations.size());
        for (const Step& step : window.steps) in_steps += step.end_job - step.first_job;
    }
    study.for_each_job(&WindowSteps::evaluations, [&](std::size_t, std::uint32_t, const Job& job) {
        const Work& work = study.timeline.work[job.first_work];
        if (work.kind != WorkKind::kKernel) return;
        const Time length = job.end - job.begin;
        ++kernels;
        ms += ms_of(length);
        if (length <= kPolicy.short_kernel) rounds.latency_ms += study.per_step(ms_of(std::min(length, kPolicy.kernel_latency)));
    });
    if (kernels == 0 || in_steps == 0) return {};
    rounds.launches = kernels / phases;
    rounds.kernel_us = 1e3 * ms / kernels;
    rounds.steps = rounds.launches / study.per_step(in_steps);
    return rounds;
}

/// Per step, what recording or another profiler added to evaluations, by the model that is without it.
double added_ms(const Study& study) {
    if (study.call_cost <= 0 && !study.has_profiler()) return 0;
    return std::max(0.0, study.evaluation_ms - study.replayed_evaluation_ms());
}

/// Why the GPU idles in evaluations, and what to do about that.
struct Advice {
    std::string reason, cause, fix;
};

Advice advice_for(const Chart& chart, Owner owner) {
    switch (owner) {
        case Owner::kLoaderWait: return {"its batches are not ready", "waits for the loader", chart.advice(Topic::kNoWorkers)};
        case Owner::kHostSync:
            return {"the host reads results in every batch", "reads and other waits for the GPU", chart.advice(Topic::kRead)};
        case Owner::kPageableCopy:
            return {"its batches come from pageable memory", "pageable copies", chart.advice(Topic::kPageable)};
        case Owner::kAllocatorChurn:
            return {"memory is given back and taken again", "the allocator", chart.advice(Topic::kFlush)};
        case Owner::kPythonWork:
        case Owner::kGarbageCollection:
            return {"the host computes in between", "work of the host",
                    "Compute scores on the GPU, or for all batches together after the loop."};
        case Owner::kFileOutput:
            return {"the host writes in between", "file output", "Write what evaluation found after its loop, or on a thread."};
        case Owner::kLaunchBound:
        case Owner::kOther:
            return {"its kernels are too small for the host to keep up", "launching", chart.advice(Topic::kEvaluation)};
        default: return {"", "reasons unknown", "Evaluate in larger batches, keep sums on the GPU and read them once."};
    }
}

void locate(const Study& study, Finding& finding) {
    if (const auto spot = place_of_evaluation(study)) {
        finding.where = spot->frame();
        finding.stack.assign(spot->stack->begin() + static_cast<std::ptrdiff_t>(spot->at), spot->stack->end());
        return;
    }
    // Native programs: the line of most calls.
    std::map<std::uint32_t, std::size_t> places;
    study.for_each_job(&WindowSteps::evaluations,
                       [&](std::size_t lane, std::uint32_t, const Job& job) { ++places[study.place_of(lane, job)]; });
    const std::uint32_t place = key_with_most(places);
    if (place == kNoPlace) return;
    finding.where = study.places.frame(place);
    finding.stack = study.places.stack(place);
}

std::string evidence_of(const Study& study, const Diagnosis& diagnosis, const Rounds& rounds, double time, const Advice& advice,
                        double blamed_ms) {
    const auto steps = static_cast<double>(study.step_count);
    const auto phases = static_cast<double>(diagnosis.evaluations);
    const double idle = time - busy_of(diagnosis.evaluation_breakdown_ms), step = study.recorded_ms + study.unseen_loading_ms(),
                 whole = step + time;
    std::string text = fmt::format(
        "{} evaluation{} of {:.1f} ms on average in {} steps take {:.0f} % of the time: {} steps per second with, {} without. "
        "The GPU idles {:.0f} % of that, against {:.0f} % in training; {:.1f} of {:.1f} ms are {}.",
        diagnosis.evaluations, diagnosis.evaluations == 1 ? "" : "s", time * steps / phases, study.step_count, 100 * time / whole,
        base::print_figures(1000 / whole, 3), base::print_figures(1000 / step, 3), 100 * idle / time,
        100 * (1 - diagnosis.busy_share), blamed_ms * steps / phases, idle * steps / phases, advice.cause);
    if (rounds.launches > 0)
        text += fmt::format(" Each launches {:.0f} kernels of {:.1f} us on average, as many as {:.1f} training steps.",
                            rounds.launches, rounds.kernel_us, rounds.steps);
    if (diagnosis.evaluations < kFewPhases) text += " How often it comes is a guess: record a longer run.";
    return text;
}

/// What lies in both.
std::vector<Window> common_parts(const std::vector<Window>& some, const std::vector<Window>& others) {
    std::vector<Window> parts;
    for (const Window& one : some)
        for (const Window& other : others)
            if (const Time begin = std::max(one.begin, other.begin), end = std::min(one.end, other.end); end > begin)
                parts.push_back({begin, end});
    return parts;
}

}  // namespace

void find_slow_evaluation(Chart& chart) {
    const Study& study = chart.study;
    const Diagnosis& diagnosis = chart.diagnosis;
    const double time = diagnosis.evaluation_ms;
    if (diagnosis.evaluations == 0 || time <= 0) return;
    const double idle = time - busy_of(diagnosis.evaluation_breakdown_ms);
    const double whole = study.costed_ms() + study.undisturbed_evaluation_ms.value_or(time);  // as lost_share has it
    // Without what recording added, training keeps the GPU busier, too.
    const double added = added_ms(study), own_idle = idle - added, own_time = time - added;
    const double usual_idle =
        1 - std::min(1.0, diagnosis.busy_share * (study.replayed_ms + study.unseen_loading_ms()) / study.costed_ms());
    double lost = own_idle - usual_idle * own_time;
    if (own_idle < std::max(0.02, usual_idle) * kPolicy.evaluation_idle_ratio * own_time) return;
    const OwnerMs& ms = diagnosis.evaluation_breakdown_ms;
    const auto owner = static_cast<Owner>(std::max_element(ms.begin() + index_of(Owner::kLoaderWait), ms.end()) - ms.begin());
    const Rounds rounds = rounds_of(study);
    const bool crumbs = (owner == Owner::kLaunchBound || owner == Owner::kOther) && rounds.steps >= kManyRounds;
    // In fewer batches there are fewer kernels, and each one's beginning and end count less.
    if (crumbs) lost += rounds.latency_ms * (1 - 1 / rounds.steps);
    if (lost / whole < kPolicy.band(Kind::kSlowEvaluation).warn) return;
    const Advice advice = advice_for(chart, owner);
    Finding finding =
        chart.finding(Kind::kSlowEvaluation, kNoPlace, lost,
                      {"Between training steps, evaluation leaves the GPU idle far more than training does" +
                           (advice.reason.empty() ? "." : ": " + advice.reason + "."),
                       evidence_of(study, diagnosis, rounds, time, advice, diagnosis.evaluation_breakdown_ms[index_of(owner)]),
                       advice.fix + " Or evaluate less often.", "evaluation keeps the GPU as busy as training does"},
                      diagnosis.evaluations < kFewPhases ? 0.6 : 0.8);
    locate(study, finding);
    finding.gain_upper_bound = lost / whole;
    finding.severity = severity_of(lost / whole, kPolicy.band(Kind::kSlowEvaluation));
    if (crumbs) finding.assumption += ", in batches so large that the latency of its kernels does not count";
    chart.findings.push_back(std::move(finding));
}

void find_stragglers(Chart& chart) {
    const Study& study = chart.study;
    std::map<std::pair<std::uint32_t, std::uint16_t>, double> ranks;
    for (const Work& work : study.timeline.work)
        if (work.communication) ranks[{work.process, work.device}] = 0;
    if (ranks.size() < 2) return;
    // Each process opens its windows when it likes: only where all of them were open do ranks compare.
    std::vector<Window> together;
    for (const WindowSteps& window : study.steps)
        if (!window.steps.empty()) together.push_back({window.steps.front().begin, window.steps.back().end});
    for (const auto& [rank, ms] : ranks)
        together = common_parts(together, windows_of(study.timeline, {rank.first, rank.second, 0, {}}));
    Time covered = 0;
    for (const Window& part : together) covered += part.end - part.begin;
    if (covered == 0) return chart.remarks.push_back("ranks were recorded at different times: who waits for whom cannot be told");
    for (const Work& work : study.timeline.work)
        for (const Window& part : together)
            if (const Time shared = std::min(work.end, part.end) - std::max(work.begin, part.begin);
                work.communication && shared > 0)
                ranks[{work.process, work.device}] +=
                    static_cast<double>(shared) / static_cast<double>(covered) * study.recorded_ms;
    const auto least = std::ranges::min_element(ranks, {}, [](const auto& rank) { return rank.second; });
    double most = 0, sum = 0;
    for (const auto& [rank, ms] : ranks) most = std::max(most, ms), sum += ms - least->second;
    const double lost = sum / static_cast<double>(ranks.size() - 1);
    if (chart.share(most - least->second) < kPolicy.band(Kind::kStraggler).warn) return;
    chart.findings.push_back(chart.finding(
        Kind::kStraggler, kNoPlace, lost,
        {fmt::format("The other ranks wait for process {} on device {}.", least->first.first, least->first.second),
         fmt::format("It spends {:.2f} ms per step in collectives, the others {:.2f} ms on average: they arrive first and wait.",
                     least->second, least->second + lost),
         "Look at that rank alone (its loader, its GPU's clocks, its data) and give every rank batches of the same cost.",
         "all ranks are as fast as the others"},
        0.8));
}

}  // namespace millrace::diagnose
