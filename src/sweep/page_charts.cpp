#include "sweep/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "plot/svg.h"

namespace millrace::sweep {
namespace {

constexpr const char* kHistoryKeys =
    "<ul class=\"keys\"><li class=\"best\"><i></i><span>best so far</span></li><li class=\"ended\"><i class=\"round\"></i>"
    "<span>complete</span></li><li class=\"other\"><i class=\"round\"></i><span>other trials, last report; at the edge: beyond "
    "it</span></li></ul>";

/// A trial of a history.
struct Point {
    size_t at = 0;
    double x = 0;  ///< share of the axis
};

/// Dots of all points with a value, and the line of the best so far, which reaches the right end.
std::string history_drawn(const PageView& view, const std::vector<Point>& points, size_t objective, const plot::Axis& y) {
    std::string others, ended, line;
    std::optional<double> best;
    for (const Point& point : points) {
        const std::optional<double> value = view.metric(point.at, objective);
        if (!value) continue;
        const bool counts = view.counts(point.at);
        (counts ? ended : others) += dot(view.trials[point.at].number, counts ? "ended" : "other", point.x, y.share(*value));
        const double sign = view.as_metric(objective, 1);
        if (!counts || (best && sign * *value >= sign * *best)) continue;
        const double x = plot::kChartWidth * point.x, height = plot::kChartHeight * (1 - y.share(*value));
        line += best ? fmt::format("H{:.1f}V{:.2f}", x, height) : fmt::format("M{:.1f} {:.2f}", x, height);
        best = value;
    }
    if (best) line += fmt::format("H{}", plot::kChartWidth);
    return fmt::format("{}{}<path class=\"curve best\" d=\"{}\"/>", others, ended, line);
}

/// How the best came about, in words.
std::string history_said(const PageView& view, size_t objective) {
    size_t improvements = 0, first = 0, last = 0;
    for (size_t at = 0; at < view.trials.size(); ++at) {
        if (!view.counts(at)) continue;
        if (improvements > 0 && view.trials[at].values[objective] >= view.trials[last].values[objective]) continue;
        if (improvements++ == 0) first = at;
        last = at;
    }
    const std::string& metric = view.data.objectives[objective].metric;
    if (improvements == 0) return fmt::format("No trial is complete, so there is no best {}.", metric);
    return fmt::format("The best {} began with {} in trial {} and came to {} in trial {}, in {}.", metric,
                       number_text(*view.metric(first, objective)), view.trials[first].number,
                       number_text(*view.metric(last, objective)), view.trials[last].number, count_text(improvements, "step"));
}

std::vector<Point> by_number(const PageView& view) {
    std::vector<Point> points;
    const double last = std::max<double>(1, static_cast<double>(view.trials.back().number));
    for (size_t at = 0; at < view.trials.size(); ++at) points.push_back({at, static_cast<double>(view.trials[at].number) / last});
    return points;
}

/// Trials with an end, by it. `seconds` becomes the time of the last one after the first start.
std::vector<Point> by_time(const PageView& view, double& seconds) {
    std::optional<storage::WallTime> begin;
    for (const storage::StoredTrial& stored : view.data.trials)
        if (stored.started && (!begin || *stored.started < *begin)) begin = stored.started;
    std::vector<Point> points;
    seconds = 0;
    if (!begin) return points;
    for (size_t at = 0; at < view.trials.size(); ++at) {
        if (!view.data.trials[at].completed) continue;
        points.push_back({at, std::max(0.0, std::chrono::duration<double>(*view.data.trials[at].completed - *begin).count())});
        seconds = std::max(seconds, points.back().x);
    }
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    for (Point& point : points) point.x = seconds > 0 ? point.x / seconds : 0;
    return points;
}

plot::Chart curves_chart(const PageView& view, const std::vector<size_t>& best, size_t objective) {
    double last = 1;
    for (const size_t at : best) last = std::max(last, static_cast<double>(view.trials[at].last_step()));
    // Trials differ where they end; their first steps would leave no room to see it.
    constexpr double kFirstSteps = 0.2;
    std::vector<double> metrics;
    for (const size_t at : best)
        for (const auto& [step, values] : view.trials[at].reports)
            if (objective < values.size() && static_cast<double>(step) > kFirstSteps * last)
                metrics.push_back(view.as_metric(objective, values[objective]));
    plot::Chart chart{.title = view.data.objectives[objective].metric,
                      .keys = "<ul class=\"keys\">",
                      .drawn = "",
                      .said = view.data.objectives[objective].metric + " at the last step of the best trials:",
                      .x = {0, last, false, ""},
                      .y = view.axis(objective, metrics),
                      .x_label = "step"};
    for (size_t i = best.size(); i > 0; --i) {  // the best on top
        const search::Trial& trial = view.trials[best[i - 1]];
        std::string line;
        bool is_new = true;
        for (const auto& [step, values] : trial.reports) {
            const double value = objective < values.size() ? view.as_metric(objective, values[objective]) : NAN;
            if (!(value >= chart.y.low && value <= chart.y.high)) {
                is_new = true;
                continue;
            }
            line +=
                fmt::format("{}{:.1f} {:.2f}", is_new ? "M" : "L", plot::kChartWidth * chart.x.share(static_cast<double>(step)),
                            plot::kChartHeight * (1 - chart.y.share(value)));
            if (is_new) line += "h0";  // a report between two gaps is a dot
            is_new = false;
        }
        chart.drawn += fmt::format("<path class=\"curve k{}\" data-t=\"{}\" d=\"{}\"/>", i - 1, trial.number, line);
    }
    for (size_t i = 0; i < best.size(); ++i) {
        const search::Trial& trial = view.trials[best[i]];
        const search::Objectives& values = trial.reports.rbegin()->second;
        const std::string value = objective < values.size() ? number_text(view.as_metric(objective, values[objective])) : "none";
        chart.keys += fmt::format("<li class=\"k{}\" data-t=\"{}\"><i></i><span>trial {}: {}</span></li>", i, trial.number,
                                  trial.number, value);
        chart.said += fmt::format(" trial {}: {} at step {}.", trial.number, value, trial.last_step());
    }
    chart.keys += "</ul>";
    return chart;
}

}  // namespace

std::string history_section(const PageView& view) {
    if (view.trials.empty()) return {};
    double seconds = 0;
    const std::vector<Point> numbers = by_number(view), times = by_time(view, seconds);
    std::string charts, lead;
    for (size_t objective = 0; objective < view.objectives(); ++objective) {
        if (!std::any_of(numbers.begin(), numbers.end(), [&](const Point& point) { return view.metric(point.at, objective); }))
            continue;
        const plot::Axis y = view.axis(objective);
        const std::string said = history_said(view, objective), name = view.data.objectives[objective].metric;
        lead += plot::xml_text(said) + " ";
        const auto add = [&](const std::string& over, const std::vector<Point>& points, const plot::Axis& x, const char* label) {
            charts += plot::html_chart({.title = name + over,
                                        .keys = kHistoryKeys,
                                        .drawn = history_drawn(view, points, objective, y),
                                        .said = name + over + ". " + said,
                                        .x = x,
                                        .y = y,
                                        .x_label = label});
        };
        add(" over trials", numbers, {0, std::max(1.0, static_cast<double>(view.trials.back().number)), false, ""}, "trial");
        if (!times.empty()) add(" over time", times, plot::time_axis(seconds), "since the first trial began");
    }
    if (charts.empty()) return {};
    lead += "What is far worse is drawn at the edge.";
    return section("history", "How the best value came about", lead, "<div class=\"charts\">" + charts + "</div>");
}

std::string front_section(const PageView& view) {
    if (view.objectives() != 2 || view.front.empty()) return {};
    const plot::Axis x = view.axis(0), y = view.axis(1);
    std::string drawn, line;
    for (size_t at = 0; at < view.trials.size(); ++at) {
        const auto first = view.metric(at, 0), second = view.metric(at, 1);
        if (first && second && std::find(view.front.begin(), view.front.end(), at) == view.front.end())
            drawn += dot(view.trials[at].number, view.counts(at) ? "ended" : "other", x.share(*first), y.share(*second));
    }
    std::vector<size_t> front = view.front;
    std::stable_sort(front.begin(), front.end(),
                     [&](size_t a, size_t b) { return view.trials[a].values < view.trials[b].values; });
    std::string said = "The front:";
    for (const size_t at : front) {
        const double first = *view.metric(at, 0), second = *view.metric(at, 1);
        // What the front dominates is bounded by steps, not by slopes.
        line += fmt::format(fmt::runtime(line.empty() ? "M{:.1f} {:.2f}" : "H{:.1f}V{:.2f}"), plot::kChartWidth * x.share(first),
                            plot::kChartHeight * (1 - y.share(second)));
        drawn += dot(view.trials[at].number, "front", x.share(first), y.share(second));
        said += fmt::format(" trial {}: {} and {}.", view.trials[at].number, number_text(first), number_text(second));
    }
    const std::string names[] = {objective_text(view.data.objectives[0]), objective_text(view.data.objectives[1])};
    const std::string chart = plot::html_chart(
        {.title = names[1],
         .keys =
             "<ul class=\"keys\"><li class=\"front\"><i class=\"round\"></i><span>on the front</span></li><li class=\"ended\">"
             "<i class=\"round\"></i><span>complete</span></li><li class=\"other\"><i class=\"round\"></i><span>other trials, "
             "last report</span></li></ul>",
         .drawn = fmt::format("<path class=\"curve front\" d=\"{}\"/>{}", line, drawn),
         .said = fmt::format("{} against {}. {}", names[1], names[0], said),
         .x = x,
         .y = y,
         .x_label = names[0]});
    return section("front", "Pareto front",
                   fmt::format("No complete trial is better than {} in both objectives.",
                               front.size() == 1 ? "this one" : fmt::format("one of these {}", front.size())),
                   "<div class=\"tall\">" + chart + "</div>");
}

std::string curves_section(const PageView& view) {
    constexpr size_t kBest = 10;
    std::vector<size_t> best;
    for (const size_t at : view.best_first)
        if (!view.trials[at].reports.empty() && view.metric(at, 0) && best.size() < kBest) best.push_back(at);
    if (best.empty()) return {};
    // Others than the first may be what does not change while a trial runs: a count of parameters, a time.
    const auto changes = [&](size_t objective) {
        return std::any_of(best.begin(), best.end(), [&](size_t at) {
            const auto& reports = view.trials[at].reports;
            return std::any_of(reports.begin(), reports.end(), [&](const auto& report) {
                return objective < report.second.size() && report.second[objective] != reports.begin()->second[objective];
            });
        });
    };
    std::string charts;
    for (size_t objective = 0; objective < view.objectives(); ++objective)
        if (objective == 0 || changes(objective)) charts += plot::html_chart(curves_chart(view, best, objective));
    return section("curves", best.size() == 1 ? "Learning curve" : fmt::format("Learning curves of the best {}", best.size()),
                   "The best trial first. A gap is a report that is not finite or far worse.",
                   "<div class=\"wide\">" + charts + "</div>");
}

}  // namespace millrace::sweep
