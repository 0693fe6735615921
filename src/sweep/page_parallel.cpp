#include "sweep/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "plot/svg.h"

namespace millrace::sweep {
namespace {

constexpr double kTop = 52, kHeight = 300, kBottom = 14, kLeft = 66, kRight = 96, kBetween = 116, kLeast = 990;
constexpr double kAlternative = 0.12;           // the part of an axis that is the number behind `or`
constexpr size_t kMostTicks = 12, kMany = 400;  // of so many trials the lines are thinner

double y_of(double share) { return kTop + kHeight * (1 - share); }

std::string tick_at(double x, double share, const std::string& label) {
    return fmt::format("<path class=\"tick\" d=\"M{0:.1f} {1:.1f}h-5\"/>", x, y_of(share)) +
           plot::text_at(x - 8, y_of(share) + 3.5, "axis", "end", plot::shortened(label, 14));
}

/// The two lines above an axis; names of recipe keys are parted at their last dot.
std::string name_at(double x, double room, const std::string& name, const char* css_class) {
    constexpr double kLetter = 7.2;
    const auto most = static_cast<size_t>(room / kLetter);
    const size_t dot = name.rfind('.');
    const bool is_parted = dot != std::string::npos && dot + 1 < name.size();
    return (is_parted ? plot::text_at(x, 18, "axis", "middle", plot::shortened(name.substr(0, dot + 1), most)) : std::string()) +
           plot::text_at(x, 34, css_class, "middle", plot::shortened(is_parted ? name.substr(dot + 1) : name, most));
}

double share_of(const search::Parameter& parameter, double value) {
    if (!parameter.alternative) return parameter.range_to_unit(value);
    return parameter.is_alternative(value) ? 0 : kAlternative + (1 - kAlternative) * parameter.range_to_unit(value);
}

std::string parameter_axis(const search::Parameter& parameter, double x, double room) {
    std::string text = name_at(x, room, parameter.name, "title");
    const double begin = parameter.alternative ? kAlternative : 0;
    text += fmt::format("<path class=\"rail\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, y_of(begin), y_of(1));
    if (parameter.alternative) text += tick_at(x, 0, parameter.text(*parameter.alternative));
    if (parameter.cells() == 0) {
        const plot::Axis axis{parameter.low, parameter.high, parameter.kind == search::ParameterKind::log, ""};
        for (const plot::Axis::Tick& tick : axis.ticks()) text += tick_at(x, begin + (1 - begin) * tick.share, tick.label);
        return text;
    }
    const auto cells = static_cast<size_t>(parameter.cells()), every = (cells + kMostTicks - 1) / kMostTicks;
    for (size_t cell = 0; cell < cells; cell += every) {
        const double value = parameter.kind == search::ParameterKind::choice
                                 ? static_cast<double>(cell)
                                 : parameter.low + static_cast<double>(cell) * parameter.step;
        text += tick_at(x, share_of(parameter, value), parameter.text(value));
    }
    return text;
}

std::string objective_axis(const storage::Objective& objective, const plot::Axis& axis, double x, double room) {
    std::string text = name_at(x, room, objective.metric, "title goal") +
                       plot::text_at(x, 18, "axis", "middle", objective.maximize ? "larger is better" : "smaller is better") +
                       fmt::format("<path class=\"rail goal\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, y_of(0), y_of(1));
    for (const plot::Axis::Tick& tick : axis.ticks())
        text += fmt::format("<path class=\"tick\" d=\"M{0:.1f} {1:.1f}h5\"/>", x, y_of(tick.share)) +
                plot::text_at(x + 8, y_of(tick.share) + 3.5, "axis", "start", tick.label);
    return text;
}

/// From the colours to the values that have them.
std::string legend(const PageView& view) {
    std::string text = "<ul class=\"keys\">";
    for (size_t colour = 0; colour < kColours; ++colour) {
        std::optional<double> low, high;
        for (size_t at = 0; at < view.trials.size(); ++at) {
            if (view.colour(at) != colour) continue;
            const double value = *view.metric(at, 0);
            low = std::min(low.value_or(value), value);
            high = std::max(high.value_or(value), value);
        }
        if (!low) continue;
        text += fmt::format("<li class=\"q{}\"><i></i><span>{}{}</span></li>", colour, colour == 0 ? "best tenth: " : "",
                            *low == *high ? number_text(*low) : fmt::format("{:.4g} to {:.4g}", *low, *high));
    }
    return text + "<li class=\"none\"><i></i><span>no value</span></li></ul>";
}

}  // namespace

std::string parallel_section(const PageView& view) {
    if (view.trials.empty()) return {};
    const size_t parameters = view.data.space.size(), axes = parameters + view.objectives();
    const double width = std::max(kLeast, kLeft + kRight + kBetween * static_cast<double>(axes - 1));
    const auto x_of = [&](size_t axis) {
        return kLeft + (width - kLeft - kRight) * static_cast<double>(axis) / static_cast<double>(std::max<size_t>(axes, 2) - 1);
    };
    const double room = x_of(1) - x_of(0);
    std::string rails, lines;
    for (size_t i = 0; i < parameters; ++i) rails += parameter_axis(view.data.space.parameters[i], x_of(i), room);
    std::vector<plot::Axis> goals;
    for (size_t objective = 0; objective < view.objectives(); ++objective) {
        goals.push_back(view.axis(objective));
        rails += objective_axis(view.data.objectives[objective], goals.back(), x_of(parameters + objective), room);
    }
    std::vector<size_t> order(view.trials.size());
    for (size_t at = 0; at < order.size(); ++at) order[at] = at;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {  // the best on top
        return view.colour(a).value_or(kColours) > view.colour(b).value_or(kColours);
    });
    for (const size_t at : order) {
        std::string line;
        const auto add = [&](size_t axis, double share) {
            line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x_of(axis), y_of(share));
        };
        for (size_t i = 0; i < parameters; ++i) add(i, share_of(view.data.space.parameters[i], view.trials[at].configuration[i]));
        for (size_t objective = 0; objective < view.objectives(); ++objective)
            if (const auto value = view.metric(at, objective)) add(parameters + objective, goals[objective].share(*value));
        const auto colour = view.colour(at);
        lines += fmt::format("<path class=\"line {}{}\" data-t=\"{}\" d=\"{}\"/>", colour ? fmt::format("q{}", *colour) : "none",
                             view.counts(at) ? "" : " early", view.trials[at].number, line);
    }
    const std::string picture = fmt::format(
        "<svg class=\"parallel{}\" viewBox=\"0 0 {:.0f} {:.0f}\" style=\"min-width:{:.0f}px\" role=\"img\" aria-label=\"Parallel "
        "coordinates of {}, one axis for each of {} and {}. The table of trials has the same numbers.\">{}{}</svg>",
        view.trials.size() > kMany ? " dense" : "", width, kTop + kHeight + kBottom, std::max(720.0, 0.85 * width),
        count_text(view.trials.size(), "trial"), count_text(parameters, "parameter"), count_text(view.objectives(), "objective"),
        lines, rails);
    return section(
        "parallel", "Which values go together",
        fmt::format("One line for each trial, through its parameters to its result. Colour: {}. Faint lines are trials "
                    "that are not complete or violate a constraint, with their last report.",
                    plot::xml_text(objective_text(view.data.objectives[0]))),
        "<figure class=\"card\">" + legend(view) + scrolling("scroll", "Parallel coordinates", picture) + "</figure>");
}

}  // namespace millrace::sweep
