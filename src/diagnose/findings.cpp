#include "diagnose/findings.h"

#include <fmt/core.h>

#include <algorithm>

namespace millrace::diagnose {
Chart::Chart(const Study& the_study, const Roles& the_roles)
    : study(the_study), roles(the_roles), framework(framework_of(the_study.timeline, the_study.launcher)) {}

Finding Chart::finding(Kind kind, std::uint32_t place, double lost_ms, const Band& band) const {
    Finding finding;
    finding.kind = kind;
    finding.severity = share(lost_ms) >= band.critical ? Severity::kCritical
                       : share(lost_ms) >= band.warn   ? Severity::kWarning
                                                       : Severity::kNote;
    if (place != kNoPlace) {
        finding.where = study.places.frame(place);
        finding.stack = study.places.stack(place);
    }
    finding.lost_ms_per_step = std::max(0.0, lost_ms);
    finding.gain_upper_bound = std::clamp(share(lost_ms), 0.0, 1.0);
    double confidence = 0.95;
    if (study.timeline.dropped > 0) confidence *= 0.8;
    if (study.step_count < study.policy.few_steps) confidence *= 0.7;
    if (study.replay_error > study.policy.replay_error) confidence *= std::max(0.3, 1 - 2 * study.replay_error);
    if (study.is_profiled()) confidence *= std::max(0.5, study.base_ms / study.recorded_ms);
    // By steps, not by windows: a longer recording of the same program has more of these.
    double unsure = 0;
    for (const WindowSteps& window : study.steps)
        if (window.match < 0.9) unsure += static_cast<double>(window.steps.size());
    confidence *= 1 - 0.1 * unsure / static_cast<double>(study.step_count);
    if (study.is_shapeless()) confidence *= 0.5;
    finding.confidence = std::max(0.05, confidence);
    return finding;
}

void Chart::suspect(Kind kind, Breadth breadth, const Band& band, Cure cure, std::function<Finding(const Judgement&)> tell,
                    const Site* site, double unseen_ms) {
    causes.push_back({kind, breadth, band.warn * study.costed_ms(), unseen_ms, std::move(cure), site, std::move(tell)});
}

double Chart::cost_of(const Cure& cure) const {
    const double alone = study.gain_of(cure);
    if (cured.empty()) return alone;
    std::vector<const Cure*> cures;
    for (const Cure& each : cured) cures.push_back(&each);
    const double before = study.step_with(cures);
    cures.push_back(&cure);
    return std::min(alone, before - study.step_with(cures));
}

std::string name_of_place(const Study& study, std::uint32_t place) {
    if (place == kNoPlace) return "a place without frames";
    const Frame& frame = study.places.frame(place);
    const std::size_t slash = frame.file.rfind('/');
    return fmt::format("{}:{}", slash == std::string::npos ? frame.file : frame.file.substr(slash + 1), frame.line);
}

void examine(Chart& chart, const Breakdown& breakdown, double pauses) {
    find_repeated_uploads(chart);
    find_repeated_kernels(chart);
    find_pageable_copies(chart);
    find_allocator_churn(chart);
    find_loader_wait(chart);
    find_host_syncs(chart);
    find_sleeping_reads(chart);
    find_file_output(chart);
    find_python_work(chart);
    find_launch_bound(chart);
    Choice choice = choose(chart.study, chart.causes);
    chart.findings = std::move(choice.findings);
    chart.cured = std::move(choice.cures);
    find_missing_tensor_cores(chart);
    find_slow_evaluation(chart, breakdown);
    find_stragglers(chart);
    find_throttling(chart);
    find_memory_edge(chart);
    find_small_batch(chart, breakdown.busy_share + pauses);
    std::stable_sort(chart.findings.begin(), chart.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.lost_ms_per_step > b.lost_ms_per_step; });
    if (choice.gone.empty()) return;
    std::string gone;
    for (const std::string& cause : choice.gone) gone += (gone.empty() ? "" : ", ") + cause;
    chart.remarks.push_back("costs only while the findings are not cured: " + gone);
}

}  // namespace millrace::diagnose
