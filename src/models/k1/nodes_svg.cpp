// The picture of a tree: how often its nodes were chosen, the paths of the largest norms, and the steps by label.
#include <fmt/format.h>

#include <algorithm>

#include "models/k1/node_report.h"
#include "plot/svg.h"

namespace millrace::models {
namespace {

using plot::short_number;
using plot::text_at;

constexpr double kMargin = 24, kLeafWidth = 64, kLevelHeight = 84, kRadius = 21, kRow = 18, kBar = 22, kTreeTop = 84;
constexpr const char* kNodeRules =
    ".edge{stroke:#9ca3af;fill:none}.worst{stroke:#dc2626;stroke-opacity:.55;fill:none}.node{fill:#2563eb;stroke:#1e3a8a}"
    ".bar{fill:#2563eb}.ground{fill:#e5e7eb}.beyond{font-weight:600;fill:#dc2626}";
constexpr const char* kDarkNodeRules = ".ground{fill:#374151}.node{stroke:#93c5fd}.beyond{fill:#f87171}";

struct Place {
    double x = 0, y = 0;
};

/// Leaves side by side in the order of a walk through the tree, parents above the middle of their children.
double place_below(const NodeReport& report, std::int32_t node, double& next, std::vector<Place>& places) {
    double low = 0, high = 0;
    bool any = false;
    for (const NodeFigures& child : report.nodes) {
        if (child.parent != node) continue;
        const double x = place_below(report, child.node, next, places);
        low = any ? std::min(low, x) : x;
        high = any ? std::max(high, x) : x;
        any = true;
    }
    if (!any) {
        low = high = next;
        next += kLeafWidth;
    }
    const double x = (low + high) / 2;
    places[static_cast<std::size_t>(node)] = {x, kTreeTop + kLevelHeight * report.nodes[static_cast<std::size_t>(node)].level};
    return x;
}

std::string line(const char* css_class, const Place& from, const Place& to, double width) {
    return fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke-width=\"{}\"/>\n", css_class,
                       short_number(from.x), short_number(from.y), short_number(to.x), short_number(to.y), short_number(width));
}

std::string row_of(const NodeFigures& node, double y) {
    std::string out = text_at(kMargin, y + 11, "axis", "start", fmt::format("{}", node.node));
    const NodeStatistics& counted = node.counted;
    for (std::size_t i = 0; i < counted.seen.size(); ++i) {
        const double share = counted.seen[i] > 0 ? counted.chosen[i] / counted.seen[i] : 0, height = share * (kRow - 4),
                     x = kMargin + 34 + kBar * static_cast<double>(i);
        out += fmt::format("<rect class=\"ground\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", short_number(x),
                           short_number(y), short_number(kBar - 3), short_number(kRow - 4));
        out += fmt::format("<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", short_number(x),
                           short_number(y + kRow - 4 - height), short_number(kBar - 3), short_number(height));
    }
    const double x = kMargin + 46 + kBar * static_cast<double>(counted.seen.size());
    return out +
           text_at(x, y + 11, node.information > node.shuffled_high ? "beyond" : "axis", "start",
                   fmt::format("{:.5f} bits, shuffled {:.5f}, 95% below {:.5f}", node.information, node.shuffled,
                               node.shuffled_high)) +
           "\n";
}

}  // namespace

std::string nodes_svg(const NodeReport& report, const std::string& title) {
    std::vector<Place> places(report.nodes.size());
    double next = kMargin + kLeafWidth / 2;
    place_below(report, 0, next, places);
    std::int32_t deepest = 0;
    for (const NodeFigures& node : report.nodes) deepest = std::max(deepest, node.level);
    const double table = kTreeTop + kLevelHeight * deepest + 76, width = std::max(620.0, next + kMargin - kLeafWidth / 2),
                 height = table + kRow * static_cast<double>(report.nodes.size()) + kMargin;
    std::string out = plot::svg_begin(title, width, height, kNodeRules, kDarkNodeRules);
    out += text_at(kMargin, 26, "head", "start", title) + "\n";
    out += text_at(kMargin, 44, "axis", "start",
                   fmt::format("{:.0f} steps; in the circles the node and the share of steps that chose it; red: paths of the "
                               "largest norms",
                               report.steps)) +
           "\n";
    std::vector<double> through(report.nodes.size());
    for (const PathFigures& path : report.paths)
        for (const std::int32_t node : path.nodes) through[static_cast<std::size_t>(node)] += path.share;
    for (const NodeFigures& node : report.nodes) {
        if (node.parent < 0) continue;
        const auto at = static_cast<std::size_t>(node.node), above = static_cast<std::size_t>(node.parent);
        out += line("edge", places[above], places[at], 1);
        if (through[at] > 0) out += line("worst", places[above], places[at], 1 + 11 * through[at]);
    }
    for (const NodeFigures& node : report.nodes) {
        const Place& place = places[static_cast<std::size_t>(node.node)];
        out += fmt::format(
            "<circle class=\"paper\" cx=\"{0}\" cy=\"{1}\" r=\"{2}\"/><circle class=\"node\" cx=\"{0}\" cy=\"{1}\" r=\"{2}\" "
            "fill-opacity=\"{3:.2f}\"/>",
            short_number(place.x), short_number(place.y), short_number(kRadius), 0.05 + 0.45 * node.counted.rate());
        out += text_at(place.x, place.y - 2, "title", "middle", fmt::format("{}", node.node));
        out += text_at(place.x, place.y + 11, "axis", "middle", fmt::format("{:.0f}%", 100 * node.counted.rate())) + "\n";
    }
    out += text_at(kMargin, table - 14, "title", "start",
                   fmt::format("Share of each label's steps that chose the node ({})", plot::shortened(report.labels, 60))) +
           "\n";
    for (std::size_t i = 0; i < report.nodes.size(); ++i) out += row_of(report.nodes[i], table + kRow * static_cast<double>(i));
    return out + "</svg>\n";
}

}  // namespace millrace::models
