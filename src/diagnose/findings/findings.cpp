#include "diagnose/findings/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace millrace::diagnose {
namespace {

/// Of the stacks of a line, which may call a whole library, the one under which the host spends most time in steps.
const Stack& heaviest_stack(const Study& study, std::uint32_t place) {
    std::map<std::uint32_t, Time> times{{study.places.stack_of(place), 0}};
    for (std::size_t lane = 0; lane < study.lanes.size(); ++lane)
        for (std::uint32_t act = study.steady[lane].first; act < study.steady[lane].second; ++act) {
            const Call& call = study.call(lane, act);
            if (study.places.of_stack(call.stack) == place)
                times[call.stack] += call.end - call.begin + study.host_gap(lane, act);
        }
    return study.timeline.stacks[std::ranges::max_element(times, {}, [](const auto& each) { return each.second; })->first];
}

}  // namespace

Finding Chart::finding(Kind kind, std::uint32_t place, double lost_ms, Words words, double sure) const {
    Finding finding{std::move(words), kind, severity_of(share(lost_ms), kPolicy.band(kind))};
    if (place != kNoPlace) {
        finding.where = study.places.frame(place);
        finding.stack = heaviest_stack(study, place);
    }
    rate(finding, lost_ms);
    finding.confidence = confidence() * sure;
    return finding;
}

void Chart::rate(Finding& finding, double lost_ms) const {
    finding.lost_ms_per_step = std::max(0.0, lost_ms);
    finding.gain_upper_bound = std::clamp(share(lost_ms), 0.0, 1.0);
}

double Chart::confidence() const {
    double confidence = 0.95;
    if (study.timeline.dropped > 0) confidence *= 0.8;
    if (study.step_count < kPolicy.few_steps) confidence *= 0.7;
    if (study.replay_error > kPolicy.replay_error) confidence *= std::max(0.3, 1 - 2 * study.replay_error);
    if (study.is_profiled()) confidence *= std::max(0.5, study.base_ms / study.recorded_ms);
    // By steps, not by windows: a longer recording of the same program has more of these.
    double unsure = 0;
    for (const WindowSteps& window : study.steps)
        if (window.match < 0.9) unsure += static_cast<double>(window.steps.size());
    confidence *= 1 - 0.1 * unsure / static_cast<double>(study.step_count);
    if (study.is_shapeless()) confidence *= 0.5;
    return std::max(0.05, confidence);
}

void Chart::suspect(Kind kind, Breadth breadth, Cure cure, Tell tell, const Site* site, double unseen_ms) {
    const double threshold_ms = kPolicy.band(kind).warn * study.costed_ms();
    causes.push_back(
        {kind, breadth, threshold_ms, unseen_ms, std::move(cure), site, std::bind_front(std::move(tell), std::cref(*this))});
}

double Chart::cost_of(const Cure& cure) const {
    const double alone = study.gain_of(cure);
    if (cured.empty()) return alone;
    std::vector<const Cure*> cures = cured;
    const double before = study.step_with(cures);
    cures.push_back(&cure);
    return std::min(alone, before - study.step_with(cures));
}

std::string replayed(const Judgement& verdict, const char* without) {
    return fmt::format("replayed without {} a step takes {:.2f} ms instead of {:.2f} ms", without, verdict.after_ms,
                       verdict.before_ms);
}

void examine(Chart& chart, double pauses) {
    // In this order: where two explain the same, the one that was suspected first is named.
    find_repeated_work(chart);
    find_memory_waits(chart);
    find_loader_wait(chart);
    find_host_syncs(chart);
    find_host_work(chart);
    Choice choice = choose(chart.study, chart.causes);
    chart.findings = std::move(choice.findings);
    chart.cured = std::move(choice.cures);
    find_missing_tensor_cores(chart);
    find_slow_evaluation(chart);
    find_stragglers(chart);
    find_machine_limits(chart);
    find_small_batch(chart, chart.diagnosis.busy_share + pauses);
    std::ranges::stable_sort(chart.findings, std::greater{}, &Finding::lost_ms_per_step);
    if (!choice.gone.empty())
        chart.remarks.push_back(fmt::format("costs only while the findings are not cured: {}", fmt::join(choice.gone, ", ")));
}

}  // namespace millrace::diagnose
