#include "sweep/page_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/units.h"

namespace millrace::sweep {

PageView::PageView(const PageData& study) : data(study), shown(study.trials.size()), colours_(study.trials.size()) {
    trials.reserve(data.trials.size());
    for (const storage::StoredTrial& stored : data.trials) trials.push_back(stored.trial);
    std::vector<bool> is_ordered(trials.size());
    best_first = search::best_first(trials);
    for (const size_t at : best_first) is_ordered[at] = true;
    std::vector<search::Objectives> points;
    std::vector<size_t> candidates, valued;
    for (size_t at = 0; at < trials.size(); ++at) {
        const search::Trial& trial = trials[at];
        positions_.emplace(trial.number, at);
        if (!is_ordered[at]) best_first.push_back(at);
        shown[at] = !trial.values.empty() || trial.reports.empty() ? trial.values : trial.reports.rbegin()->second;
        if (counts(at)) {
            points.push_back(trial.values);
            candidates.push_back(at);
        }
        if (metric(at, 0)) valued.push_back(at);
    }
    const std::vector<size_t> ranks = search::front_ranks(points);
    for (size_t i = 0; i < ranks.size(); ++i)
        if (ranks[i] == 0) front.push_back(candidates[i]);
    std::stable_sort(valued.begin(), valued.end(), [&](size_t a, size_t b) { return shown[a][0] < shown[b][0]; });
    const size_t best = (valued.size() + 9) / 10, others = valued.size() - best;
    for (size_t i = 0; i < valued.size(); ++i) {
        // Equal values have equal colours.
        const bool is_equal = i > 0 && shown[valued[i]][0] == shown[valued[i - 1]][0];
        colours_[valued[i]] = is_equal   ? colours_[valued[i - 1]]
                              : i < best ? 0
                                         : 1 + (i - best) * (kColours - 1) / std::max<size_t>(others, 1);
    }
}

bool PageView::counts(size_t at) const {
    return is_complete(at) && trials[at].violation() == 0 && search::all_finite(trials[at].values);
}

std::optional<double> PageView::metric(size_t at, size_t objective) const {
    if (objective >= shown[at].size() || !std::isfinite(shown[at][objective])) return std::nullopt;
    return as_metric(objective, shown[at][objective]);
}

std::optional<size_t> PageView::position(int64_t number) const {
    const auto found = positions_.find(number);
    return found == positions_.end() ? std::nullopt : std::optional(found->second);
}

const char* PageView::state(size_t at) const {
    switch (trials[at].state) {
        case search::TrialState::running: return data.trials[at].is_waiting ? "waiting" : "running";
        case search::TrialState::paused: return "paused";
        case search::TrialState::complete: return trials[at].violation() > 0 ? "infeasible" : "complete";
        case search::TrialState::pruned: return "pruned";
        case search::TrialState::failed: return "failed";
    }
    return "";
}

plot::Axis PageView::axis(size_t objective, std::vector<double> metrics) const {
    const bool maximize = data.objectives[objective].maximize;
    std::erase_if(metrics, [](double value) { return !std::isfinite(value); });
    std::sort(metrics.begin(), metrics.end(), [&](double a, double b) { return maximize ? a > b : a < b; });
    constexpr size_t kFew = 5;
    if (metrics.size() < kFew) return plot::axis_over(metrics);
    const double best = metrics.front(), most = metrics[metrics.size() * 9 / 10], worst = metrics.back();
    constexpr double kLogFrom = 100, kFarther = 3;
    if (std::min(best, worst) > 0 && std::max(best / most, most / best) > kLogFrom) return plot::axis_over(metrics, true);
    if (most != best && std::abs(worst - best) > kFarther * std::abs(most - best))
        std::erase_if(metrics, [&](double value) { return std::abs(value - best) > kFarther / 2 * std::abs(most - best); });
    return plot::axis_over(metrics);
}

plot::Axis PageView::axis(size_t objective) const {
    constexpr size_t kEnough = 5;
    std::vector<double> all, complete;
    for (size_t at = 0; at < trials.size(); ++at) {
        const std::optional<double> value = metric(at, objective);
        if (!value) continue;
        all.push_back(*value);
        if (is_complete(at)) complete.push_back(*value);
    }
    return axis(objective, complete.size() >= kEnough ? std::move(complete) : std::move(all));
}

std::vector<std::string> PageView::short_settings(const search::Configuration& configuration) const {
    std::vector<std::string> out;
    for (size_t i = 0; i < data.space.size(); ++i) {
        const search::Parameter& parameter = data.space.parameters[i];
        out.push_back(parameter.name + "=" +
                      (parameter.cells() == 0 ? number_text(configuration[i]) : parameter.text(configuration[i])));
    }
    return out;
}

std::string number_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
    return fmt::format("{:.6g}", value == 0 ? 0 : value);
}

std::string objective_text(const storage::Objective& objective) {
    return fmt::format("{} ({} is better)", objective.metric, objective.maximize ? "larger" : "smaller");
}

std::string seconds_text(double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return "not known";
    return base::print_duration(std::chrono::nanoseconds(std::llround(seconds * 1e9)));
}

std::string count_text(size_t count, const char* noun) {
    return fmt::format("{} {}{}", base::print_count(count), noun, count == 1 ? "" : "s");
}

std::string dot(int64_t trial, const std::string& css_class, double x, double y) {
    return fmt::format("<path class=\"dot {}\" data-t=\"{}\" d=\"M{:.1f} {:.2f}h0\"/>", css_class, trial, plot::kChartWidth * x,
                       plot::kChartHeight * (1 - y));
}

}  // namespace millrace::sweep
