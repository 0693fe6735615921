#include "sweep/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/units.h"
#include "base/version.h"
#include "plot/page.h"
#include "plot/svg.h"
#include "sweep/ledger.h"

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

std::string section(const char* id, const std::string& title, const std::string& lead, const std::string& inside) {
    const std::string words = lead.empty() ? "" : fmt::format("<p class=\"soft\">{}</p>\n", lead);
    return fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}{3}</section>\n", id, title, words, inside);
}

std::string scrolling(const char* css_class, const char* label, const std::string& inside) {
    return fmt::format("<div class=\"{}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>", css_class, label, inside);
}

std::string dot(int64_t trial, const std::string& css_class, double x, double y) {
    return fmt::format("<path class=\"dot {}\" data-t=\"{}\" d=\"M{:.1f} {:.2f}h0\"/>", css_class, trial, plot::kChartWidth * x,
                       plot::kChartHeight * (1 - y));
}

namespace {

std::string settings_chips(const PageView& view, const search::Configuration& configuration) {
    std::string text = "<div class=\"chips\">";
    for (const std::string& setting : view.short_settings(configuration)) text += "<code>" + plot::xml_text(setting) + "</code>";
    return text + "</div>";
}

std::string verdict_card(const std::string& title, const std::string& more) {
    return "<section class=\"card verdict\"><h1>" + title + "</h1>" + more + "</section>\n";
}

/// "24 trials and 4 reruns of finalists"
std::string trials_text(const PageView& view) {
    const auto reruns = static_cast<size_t>(std::ranges::count_if(
        view.data.trials, [](const storage::StoredTrial& stored) { return stored.attributes.contains(kFinalAttribute); }));
    const std::string searched = count_text(view.trials.size() - reruns, "trial");
    return reruns == 0 ? searched : searched + " and " + count_text(reruns, "rerun") + " of finalists";
}

/// The first thing to know: what is best, or why nothing is.
std::string verdict(const PageView& view) {
    const PageData& data = view.data;
    if (view.trials.empty()) return verdict_card("No trials yet", "<p class=\"lead\">The study is empty.</p>");
    if (view.front.empty()) {
        size_t failed = 0, complete = 0;
        for (size_t at = 0; at < view.trials.size(); ++at) {
            failed += view.trials[at].state == search::TrialState::failed ? 1 : 0;
            complete += view.is_complete(at) ? 1 : 0;
        }
        if (failed == view.trials.size())
            return verdict_card(
                failed == 1 ? "The trial failed" : fmt::format("All {} failed", count_text(failed, "trial")),
                "<p class=\"lead\">A trial fails when it diverges: one of its values is not finite. Smaller learning "
                "rates are the first thing to try.</p>");
        if (complete > 0)
            return verdict_card(
                "No trial fits",
                "<p class=\"lead\">All complete trials violate a constraint or have a value that is not finite.</p>");
        return verdict_card("No trial is complete yet", fmt::format("<p class=\"lead\">Of {}, {} failed.</p>",
                                                                    count_text(view.trials.size(), "trial"), failed));
    }
    if (view.objectives() > 1) {
        std::string names;
        for (const storage::Objective& objective : data.objectives)
            names += (names.empty() ? "" : ", ") + plot::xml_text(objective_text(objective));
        return verdict_card(fmt::format("{} on the Pareto front", count_text(view.front.size(), "trial")),
                            fmt::format("<p class=\"lead\">Of {}, no other is better in all objectives: {}.</p>",
                                        count_text(view.trials.size(), "trial"), names));
    }
    const std::string metric = plot::xml_text(data.objectives[0].metric);
    if (!data.finalists.empty()) {
        const search::Finalist& best = data.finalists.front();
        return verdict_card(
            fmt::format("{} <small>{}</small>", number_text(view.as_metric(0, best.mean[0])), metric),
            fmt::format("<p class=\"lead\">The best of {}: {}.{}</p>", trials_text(view),
                        best.numbers.size() > 1 ? fmt::format("the mean of its {}", count_text(best.numbers.size(), "trial"))
                                                : "tried once",
                        data.test.empty() ? "" : " On the test part: " + plot::xml_text(data.test) + ".") +
                settings_chips(view, best.configuration));
    }
    const size_t best = view.front.front();
    return verdict_card(
        fmt::format("{} <small>{}</small>", number_text(*view.metric(best, 0)), metric),
        fmt::format("<p class=\"lead\">The best of {}: trial {}, tried once.</p>", trials_text(view), view.trials[best].number) +
            settings_chips(view, view.trials[best].configuration));
}

std::string tiles(const PageView& view) {
    std::string text = "<dl class=\"tiles\">\n";
    std::map<std::string, size_t> states;
    for (size_t at = 0; at < view.trials.size(); ++at) ++states[view.state(at)];
    for (const char* state : {"complete", "infeasible", "running", "paused", "waiting", "pruned", "failed"})
        if (states.contains(state) || std::string(state) == "complete")
            text += fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", state, base::print_count(states[state]),
                                std::string(state) == "paused" ? "<small>ended early; added trials may wake them</small>" : "");
    if (view.data.seconds > 0) {
        const double rate = static_cast<double>(view.trials.size()) / view.data.seconds * 60;
        text += fmt::format("<div><dt>time</dt><dd>{}<small>{:.3g} trials a minute</small></dd></div>\n",
                            seconds_text(view.data.seconds), rate);
    }
    return text + "</dl>\n";
}

std::string range_text(const search::Parameter& parameter) {
    std::string text;
    if (parameter.kind == search::ParameterKind::choice) {
        for (size_t i = 0; i < parameter.choices.size(); ++i)
            text += (i == 0 ? "" : ", ") + parameter.text(static_cast<double>(i));
        return text;
    }
    text = parameter.text(parameter.low) + " to " + parameter.text(parameter.high);
    if (parameter.kind == search::ParameterKind::log) text += ", logarithmic";
    if (parameter.kind == search::ParameterKind::integer && parameter.step != 1)
        text += fmt::format(" in steps of {:g}", parameter.step);
    if (parameter.alternative) text += ", or " + parameter.text(*parameter.alternative);
    return text;
}

std::string how_it_was_run(const PageData& data) {
    std::string text = "<div class=\"card run\">";
    if (!data.command.empty()) text += "<b>Command</b><pre>" + plot::xml_text(data.command) + "</pre>";
    if (!data.recipe.empty()) text += "<b>Recipe</b><pre>" + plot::xml_text(data.recipe) + "</pre>";
    text += "<b>Searched</b><table><tbody>";
    for (const search::Parameter& parameter : data.space.parameters)
        text += fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>", plot::xml_text(parameter.name),
                            plot::xml_text(range_text(parameter)));
    for (const storage::Objective& objective : data.objectives)
        text += fmt::format("<tr><th scope=\"row\">objective</th><td>{}</td></tr>", plot::xml_text(objective_text(objective)));
    for (const std::string& constraint : data.constraints)
        text += fmt::format("<tr><th scope=\"row\">constraint</th><td>{}</td></tr>", plot::xml_text(constraint));
    return section("run", "How it was run", "", text + "</tbody></table></div>");
}

}  // namespace

std::string page(const PageData& data) {
    const PageView view(data);
    std::string body = "<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<header class=\"top\"><b>Millrace sweep</b>";
    if (!data.study.empty()) body += "<code>" + plot::xml_text(plot::shortened(data.study, 300)) + "</code>";
    body += "</header>\n<main id=\"main\">\n" + verdict(view) + tiles(view) + finalists_section(view) + history_section(view) +
            front_section(view) + parallel_section(view) + importance_section(view) + curves_section(view) +
            trials_section(view) + how_it_was_run(data) + "</main>\n";
    body += fmt::format("<footer>Made by millrace {}. This file loads nothing from the network.</footer>\n",
                        plot::xml_text(base::version()));
    return plot::html_page("Millrace sweep: " + plot::shortened(data.study, 80), page_look(), {page_script(), page_script_hash()},
                           body);
}

}  // namespace millrace::sweep
