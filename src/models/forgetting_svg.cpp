#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/forgetting.h"
#include "plot/chart.h"
#include "plot/svg.h"

namespace millrace::models {
namespace {

constexpr double kCurveLeft = 64, kCurveWidth = 640, kRight = 24, kHeader = 72, kPanel = 190, kPlot = 132, kCurveFooter = 28;
constexpr std::size_t kColours = 6;

constexpr const char* kCurveRules =
    R"(.grid{stroke:#e5e7eb;stroke-width:1}.own{fill:#f3f4f6}polyline,.key{fill:none;stroke-width:1.8}
polygon{fill-opacity:.15}
.c0{stroke:#2563eb}.c1{stroke:#d97706}.c2{stroke:#059669}.c3{stroke:#dc2626}.c4{stroke:#7c3aed}.c5{stroke:#6b7280}
.f0{fill:#2563eb}.f1{fill:#d97706}.f2{fill:#059669}.f3{fill:#dc2626}.f4{fill:#7c3aed}.f5{fill:#6b7280})";
constexpr const char* kDarkCurveRules = ".grid{stroke:#2b3545}.own{fill:#1f2937}";

/// Smallest, mean and largest loss of a group's members.
struct Spread {
    double low = 0, mean = 0, high = 0;
};

Spread spread_of(const Course& course, const DomainLosses& epoch, const std::string& group, std::size_t domain) {
    std::vector<double> values;
    for (std::size_t k = 0; k < course.groups.size(); ++k)
        if (course.groups[k] == group) values.push_back(epoch.losses[k][domain]);
    const auto [low, high] = std::ranges::minmax(values);
    return {low, estimate(values).mean, high};
}

std::string panel(const Course& course, const Forgetting& measured, std::size_t domain, double top) {
    const auto last = static_cast<double>(course.domains.size() * course.epochs_each),
               each = static_cast<double>(course.epochs_each);
    const auto x = [&](double epoch) { return kCurveLeft + kCurveWidth * epoch / last; };
    std::vector<double> losses;
    for (const DomainLosses& epoch : course.epochs)
        for (const std::vector<double>& member : epoch.losses) losses.push_back(member[domain]);
    const plot::Axis axis = plot::axis_over(losses);
    const auto height = [&](double share) { return top + kPlot * (1 - share); };
    std::string svg = plot::text_at(kCurveLeft, top - 8, "title", "start", course.domains[domain] + ": loss, nats per token");
    svg += fmt::format("<rect class=\"own\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                       plot::short_number(x(static_cast<double>(domain) * each)), plot::short_number(top),
                       plot::short_number(kCurveWidth * each / last), plot::short_number(kPlot));
    for (const plot::Axis::Tick& tick : axis.ticks()) {
        svg += fmt::format("<path class=\"grid\" d=\"M{} {}h{}\"/>", kCurveLeft, plot::short_number(height(tick.share)),
                           kCurveWidth);
        svg += plot::text_at(kCurveLeft - 6, height(tick.share) + 3, "axis", "end", tick.label);
    }
    for (std::size_t stage = 0; stage < course.domains.size(); ++stage)
        svg += plot::text_at(x((static_cast<double>(stage) + 0.5) * each), top + kPlot + 16, "axis", "middle",
                             "learning " + course.domains[stage]);
    svg += "\n";
    for (std::size_t g = 0; g < measured.groups.size(); ++g) {
        std::string line, upper, lower;
        for (const DomainLosses& epoch : course.epochs) {
            const Spread spread = spread_of(course, epoch, measured.groups[g].name, domain);
            if (!std::isfinite(spread.low) || !std::isfinite(spread.mean)) continue;
            const auto point = [&](double value) {
                return fmt::format("{},{} ", plot::short_number(x(epoch.epoch)), plot::short_number(height(axis.share(value))));
            };
            line += point(spread.mean);
            upper += point(spread.high);
            lower = point(spread.low) + lower;
        }
        svg += fmt::format("<polygon class=\"f{0}\" points=\"{2}{3}\"/><polyline class=\"c{0}\" points=\"{1}\"/>\n", g % kColours,
                           line, upper, lower);
    }
    return svg;
}

}  // namespace

std::string forgetting_svg(const Course& course, const Forgetting& measured) {
    const double height = kHeader + kPanel * static_cast<double>(course.domains.size()) + kCurveFooter;
    std::string svg = plot::svg_begin("Loss of every domain while domains are learned in turn", kCurveLeft + kCurveWidth + kRight,
                                      height, kCurveRules, kDarkCurveRules);
    svg += plot::text_at(16, 24, "head", "start", "Loss of every domain while domains are learned in turn");
    double x = kCurveLeft;
    for (std::size_t g = 0; g < measured.groups.size(); ++g) {
        const std::string name = measured.groups[g].name.empty() ? "all members" : measured.groups[g].name;
        svg += fmt::format("<path class=\"key c{}\" d=\"M{} 40h20\"/>", g % kColours, plot::short_number(x));
        svg += plot::text_at(x + 26, 44, "", "start", name);
        x += 50 + 7 * static_cast<double>(name.size());
    }
    svg += "\n";
    for (std::size_t d = 0; d < course.domains.size(); ++d)
        svg += panel(course, measured, d, kHeader + kPanel * static_cast<double>(d) + 8);
    svg += plot::text_at(kCurveLeft, height - 10, "axis", "start",
                         "lines: means over members; bands: from the least to the largest; shaded: the domain's own stage");
    return svg + "</svg>\n";
}

}  // namespace millrace::models
