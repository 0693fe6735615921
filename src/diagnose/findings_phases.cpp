// Beyond the training step: evaluation, and ranks that wait for each other.

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "diagnose/findings.h"
#include "diagnose/stretches.h"

namespace millrace::diagnose {

void find_slow_evaluation(Chart& chart, double busy_share) {
    const Study& study = chart.study;
    double time = 0, idle = 0;
    std::size_t phases = 0;
    std::map<std::uint32_t, std::size_t> places;
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
        for (const Phase& phase : study.steps[lane].evaluations) {
            if (phase.end <= phase.begin) continue;
            ++phases;
            time += static_cast<double>(phase.end - phase.begin) * 1e-6;
            for (const Stretch& stretch : device_stretches(study.timeline, study.lanes[lane], phase.begin, phase.end))
                if (stretch.idle) idle += static_cast<double>(stretch.end - stretch.begin) * 1e-6;
            for (std::uint32_t job = phase.first_job; job < phase.end_job; ++job)
                if (const std::uint32_t call = study.lanes[lane].jobs[job].call;
                    call != kNobody && study.call(lane, call).stack != kNoStack)
                    ++places[study.host.place_of(lane, call)];
        }
    if (phases == 0 || time <= 0) return;
    const auto steps = static_cast<double>(study.step_count);
    const double usual = std::max(0.02, 1 - busy_share) * study.policy.evaluation_idle_ratio;
    const double whole = study.recorded_ms + time / steps;
    const double lost = (idle - (1 - busy_share) * time) / steps;
    if (idle / time < usual || lost / whole < study.policy.slow_evaluation.warn) return;
    std::uint32_t place = kNoPlace;
    std::size_t most = 0;
    for (const auto& [entry, count] : places)
        if (entry != kNoPlace && count > most) most = count, place = entry;
    Finding finding = chart.finding(Kind::kSlowEvaluation, place, lost, study.policy.slow_evaluation);
    finding.gain_upper_bound = lost / whole;
    finding.what = "Between training steps, evaluation leaves the GPU idle far more than training does.";
    finding.evidence = fmt::format(
        "{} phases of {:.1f} ms on average in {} steps; the GPU idles {:.0f} % of them, against {:.0f} % in training.", phases,
        time / static_cast<double>(phases), study.step_count, 100 * idle / time, 100 * (1 - busy_share));
    finding.fix =
        "Evaluate under `torch.inference_mode()` with a larger batch, keep sums on the GPU and read them once, give the "
        "evaluation's "
        "loader workers, or evaluate less often.";
    finding.assumption = "evaluation keeps the GPU as busy as training does";
    finding.confidence *= 0.8;
    chart.findings.push_back(std::move(finding));
}

void find_stragglers(Chart& chart) {
    const Study& study = chart.study;
    // Time in collectives per rank, over the windows of the busiest one.
    std::map<std::pair<std::uint32_t, std::uint16_t>, double> ranks;
    for (const Work& work : study.timeline.work) {
        if (!work.communication) continue;
        for (std::size_t lane = 0; lane < study.lanes.size(); ++lane) {
            const std::vector<Step>& steps = study.steps[lane].steps;
            if (steps.empty()) continue;
            const Time begin = std::max(work.begin, steps.front().begin), end = std::min(work.end, steps.back().end);
            if (end > begin)
                ranks[{work.process, work.device}] +=
                    static_cast<double>(end - begin) * 1e-6 / static_cast<double>(study.step_count);
        }
    }
    if (ranks.size() < 2) return;
    const auto least =
        std::min_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    double most = 0, sum = 0;
    for (const auto& [rank, ms] : ranks) {
        most = std::max(most, ms);
        sum += ms - least->second;
    }
    const double lost = sum / static_cast<double>(ranks.size() - 1);
    if (chart.share(most - least->second) < study.policy.straggler.warn) return;
    Finding finding = chart.finding(Kind::kStraggler, kNoPlace, lost, study.policy.straggler);
    finding.what = fmt::format("The other ranks wait for process {} on device {}.", least->first.first, least->first.second);
    finding.evidence =
        fmt::format("It spends {:.2f} ms per step in collectives, the others {:.2f} ms on average: they arrive first and wait.",
                    least->second, least->second + lost);
    finding.fix =
        "Look at that rank alone (its loader, its GPU's clocks, its share of the data) and give every rank batches of the same "
        "cost.";
    finding.assumption = "all ranks are as fast as the others";
    finding.confidence *= 0.8;
    chart.findings.push_back(std::move(finding));
}

}  // namespace millrace::diagnose
