#include "sweep/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/split.h"
#include "plot/svg.h"
#include "sweep/finals.h"

namespace millrace::sweep {
namespace {

/// What the trials of a finalist have of an objective, with the metric's sign.
std::vector<double> spread_of(const PageView& view, const search::Finalist& finalist, size_t objective) {
    std::vector<double> out;
    for (const int64_t number : finalist.numbers)
        if (const auto value = view.metric(static_cast<size_t>(number), objective)) out.push_back(*value);
    return out;
}

/// The trials as dots, the mean as a line, on an axis that all finalists share.
std::string strip(const search::Finalist& finalist, const std::vector<double>& values, double mean, const plot::Axis& axis) {
    std::string drawn = fmt::format("<path class=\"grid\" d=\"M0 50h{}\"/><path class=\"curve best\" d=\"M{:.1f} 10V90\"/>",
                                    plot::kChartWidth, plot::kChartWidth * axis.share(mean));
    for (size_t i = 0; i < values.size(); ++i) drawn += dot(finalist.numbers[i], "ended", axis.share(values[i]), 0.5);
    return fmt::format("<svg class=\"strip\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{}</svg>",
                       plot::kChartWidth, plot::kChartHeight, drawn);
}

std::string result_cell(const PageView& view, const search::Finalist& finalist, size_t objective, const plot::Axis& axis) {
    const std::vector<double> values = spread_of(view, finalist, objective);
    const double mean = view.as_metric(objective, finalist.mean[objective]);
    std::string text = fmt::format("<td><b>{}</b>", number_text(mean));
    if (values.size() > 1) {
        const auto [low, high] = std::minmax_element(values.begin(), values.end());
        text += fmt::format(" &plusmn; {:.2g}<small>{} to {}</small>", summary_of(values).spread, number_text(*low),
                            number_text(*high));
    }
    return text + (values.empty() ? "" : strip(finalist, values, mean, axis)) + "</td>";
}

/// What is known of a trial beside its values: texts of whatever length.
std::string attribute_list(const PageView& view, const search::Finalist& finalist) {
    std::string text;
    if (finalist.numbers.empty()) return text;
    for (const auto& [name, value] : view.data.trials[static_cast<size_t>(finalist.numbers.front())].attributes) {
        text += "<dt>" + plot::xml_text(name) + "</dt><dd><pre>";
        for (const std::string& line : base::split(value, '\n')) text += plot::xml_text(line) + "\n";  // its end would be a blank
        text += "</pre></dd>";
    }
    return text;
}

std::string table_head(const std::vector<std::string>& names) {
    std::string text = "<thead><tr>";
    for (const std::string& name : names) text += "<th scope=\"col\">" + plot::xml_text(name) + "</th>";
    return text + "</tr></thead>";
}

std::string sorted_cell(double sorted_by, const std::string& text) {
    return fmt::format("<td data-v=\"{:.17g}\">{}</td>", sorted_by, plot::xml_text(text));
}

std::string violated(const PageView& view, const search::Trial& trial) {
    std::string text;
    for (size_t i = 0; i < trial.violations.size(); ++i) {
        if (trial.violations[i] <= 0) continue;
        const std::string name =
            i < view.data.constraints.size() ? view.data.constraints[i] : fmt::format("constraint {}", i + 1);
        text += (text.empty() ? "" : "; ") + name + ": by " + number_text(trial.violations[i]);
    }
    return text;
}

std::string trial_row(const PageView& view, size_t at) {
    const search::Trial& trial = view.trials[at];
    const storage::StoredTrial& stored = view.data.trials[at];
    std::string text = fmt::format("<tr id=\"t{0}\"><td data-v=\"{0}\">{0}</td><td><span class=\"chip {1}\">{1}</span></td>",
                                   trial.number, view.state(at));
    for (size_t objective = 0; objective < view.objectives(); ++objective) {
        if (objective >= view.shown[at].size()) {
            text += "<td></td>";
            continue;
        }
        const double value = view.as_metric(objective, view.shown[at][objective]);
        // A value that is not finite is no number to sort by.
        text += std::isfinite(value) ? sorted_cell(value, number_text(value)) : "<td>" + number_text(value) + "</td>";
    }
    text += trial.reports.empty() ? "<td></td>"
                                  : sorted_cell(static_cast<double>(trial.last_step()), std::to_string(trial.last_step()));
    for (size_t i = 0; i < view.data.space.size(); ++i) {
        const search::Parameter& parameter = view.data.space.parameters[i];
        const double value = trial.configuration[i];
        const bool is_number = parameter.cells() == 0;
        text += sorted_cell(value, is_number ? number_text(value) : parameter.text(value));
    }
    if (!view.data.constraints.empty()) {
        const std::string why = violated(view, trial);
        text += sorted_cell(std::min(trial.violation(), 1e300), why.empty() ? "hold" : why);
    }
    if (stored.started && stored.completed) {
        const double seconds = std::chrono::duration<double>(*stored.completed - *stored.started).count();
        return text + sorted_cell(seconds, seconds_text(seconds)) + "</tr>\n";
    }
    return text + "<td></td></tr>\n";
}

}  // namespace

std::string finalists_section(const PageView& view) {
    if (view.data.finalists.empty()) return {};
    std::vector<std::string> names = {"", "trials"};
    std::vector<plot::Axis> axes;
    for (size_t objective = 0; objective < view.objectives(); ++objective) {
        names.insert(names.end() - 1, objective_text(view.data.objectives[objective]));
        std::vector<double> all;
        for (const search::Finalist& finalist : view.data.finalists) {
            const std::vector<double> values = spread_of(view, finalist, objective);
            all.insert(all.end(), values.begin(), values.end());
            all.push_back(view.as_metric(objective, finalist.mean[objective]));
        }
        axes.push_back(plot::axis_over(all));
    }
    names.emplace_back("settings");
    std::string rows;
    bool has_spread = false;
    for (size_t i = 0; i < view.data.finalists.size(); ++i) {
        const search::Finalist& finalist = view.data.finalists[i];
        has_spread = has_spread || finalist.numbers.size() > 1;
        std::string numbers, settings;
        for (const int64_t number : finalist.numbers)
            numbers += fmt::format("{}<a href=\"#t{}\">{}</a>", numbers.empty() ? "" : ", ", number, number);
        for (const std::string& setting : view.short_settings(finalist.configuration))
            settings += "<code>" + plot::xml_text(setting) + "</code> ";
        std::string exact;
        for (const std::string& setting : view.data.space.settings(finalist.configuration))
            exact += "--set " + plot::xml_text(setting) + "\n";
        rows += fmt::format("<tr><td>{}</td>", i + 1);
        for (size_t objective = 0; objective < view.objectives(); ++objective)
            rows += result_cell(view, finalist, objective, axes[objective]);
        rows += fmt::format(
            "<td>{}</td><td class=\"settings\">{}<details><summary>Exact values and "
            "more</summary><dl><dt>arguments</dt><dd><pre>{}"
            "</pre></dd>{}</dl></details></td></tr>\n",
            numbers, settings, exact, attribute_list(view, finalist));
    }
    const std::string table = fmt::format("<table class=\"finalists\">{}<tbody>{}</tbody></table>", table_head(names), rows);
    return section(
        "finalists", "Finalists",
        has_spread
            ? "Mean &plusmn; standard deviation over the trials of a configuration, which differ in their seed; below from the "
              "worst to the best of them. Dots are trials, the bar is their mean, on one scale for all finalists."
            : "Each was tried once, so how much luck is in its result is not known.",
        scrolling("card scroll", "Finalists", table));
}

std::string importance_section(const PageView& view) {
    const std::vector<double>& shares = view.data.importance;
    std::string inside;
    if (view.trials.empty()) return {};
    if (shares.size() != view.data.space.size()) {
        inside = "<p>Fewer than 8 trials are complete: too few to tell which parameters matter.</p>";
    } else if (std::all_of(shares.begin(), shares.end(), [](double share) { return !(share > 0); })) {
        inside = "<p>The results do not follow the parameters: no parameter explains them.</p>";
    } else {
        std::vector<size_t> order(shares.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
        const double most = shares[order.front()];
        inside = "<table class=\"shares\"><tbody>";
        for (const size_t i : order)
            inside += fmt::format(
                "<tr><th scope=\"row\">{}</th><td><div class=\"share\" style=\"width:{:.1f}%\"></div></td>"
                "<td class=\"num\">{:.0f} %</td></tr>",
                plot::xml_text(view.data.space.parameters[i].name), 100 * std::max(shares[i], 0.0) / most, 100 * shares[i]);
        inside += "</tbody></table>";
    }
    return section(
        "importance", "Which parameters matter",
        fmt::format("Share of what the parameters explain of {}: how much worse a forest of trees predicts it when one "
                    "parameter is shuffled.",
                    plot::xml_text(view.data.objectives[0].metric)),
        "<div class=\"card\">" + inside + "</div>");
}

std::string trials_section(const PageView& view) {
    if (view.trials.empty()) return {};
    std::vector<std::string> names = {"trial", "state"};
    for (const storage::Objective& objective : view.data.objectives) names.push_back(objective.metric);
    names.emplace_back("step");
    for (const search::Parameter& parameter : view.data.space.parameters) names.push_back(parameter.name);
    if (!view.data.constraints.empty()) names.emplace_back("constraints");
    names.emplace_back("took");
    std::string rows;
    for (const size_t at : view.best_first) rows += trial_row(view, at);
    const std::string table = fmt::format("<table id=\"table\">{}<tbody>\n{}</tbody></table>", table_head(names), rows);
    return section(
        "trials", "All trials",
        "Best first. A trial that is not complete shows its last report.<span class=\"scripted\"> Click a column's name "
        "to sort. Click a row, or use the arrow keys in the table, to find a trial in the pictures.</span>",
        scrolling("card scroll rows", "All trials", table) + "<p id=\"chosen\" aria-live=\"polite\"></p>");
}

}  // namespace millrace::sweep
