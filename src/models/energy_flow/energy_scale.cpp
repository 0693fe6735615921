#include "models/energy_flow/flow_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "plot/svg.h"

namespace millrace::models {
namespace {

constexpr int kLevels = 2 * EnergyScale::kSide + 1;
constexpr double kWithin = 0.99;  ///< share of the values that the scale tells apart

struct Colour {
    double red, green, blue;
};
/// At -1, -1/2, 0, 1/2 and 1 of the scale.
using Stops = std::array<Colour, 5>;
constexpr Stops kLightArea = {{{30, 58, 138}, {82, 144, 246}, {248, 250, 252}, {240, 150, 40}, {140, 45, 10}}};
constexpr Stops kDarkArea = {{{191, 219, 254}, {52, 116, 226}, {26, 34, 50}, {205, 110, 10}, {253, 230, 138}}};
constexpr Stops kLightLine = {{{30, 58, 138}, {82, 144, 246}, {190, 198, 210}, {240, 150, 40}, {140, 45, 10}}};
constexpr Stops kDarkLine = {{{191, 219, 254}, {52, 116, 226}, {84, 96, 115}, {205, 110, 10}, {253, 230, 138}}};

std::string colour_of(const Stops& stops, int level) {
    const double at = 4.0 * level / (kLevels - 1);
    const std::size_t below = std::min<std::size_t>(3, static_cast<std::size_t>(at));
    const double share = at - static_cast<double>(below);
    const Colour &a = stops[below], &b = stops[below + 1];
    const auto mix = [&](double from, double to) { return static_cast<int>(std::lround(from + share * (to - from))); };
    return fmt::format("#{:02x}{:02x}{:02x}", mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue));
}

std::string class_of(const char* kind, int level) { return level < 0 ? "bad" : fmt::format("{}{}", kind, level); }

}  // namespace

EnergyScale::EnergyScale(const std::vector<const std::vector<double>*>& values) {
    std::vector<double> sizes;
    for (const std::vector<double>* some : values)
        for (const double value : *some) {
            values_ += 1;
            if (std::isfinite(value))
                sizes.push_back(std::abs(value));
            else
                not_finite_ += 1;
        }
    if (sizes.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(kWithin * static_cast<double>(sizes.size() - 1));
    std::nth_element(sizes.begin(), sizes.begin() + at, sizes.end());
    double reach = sizes[static_cast<std::size_t>(at)];
    if (!(reach > 0)) reach = *std::max_element(sizes.begin(), sizes.end());
    if (!(reach > 0)) return;
    const double step = plot::axis_step(reach) / 2, rounded = step * std::ceil(reach / step - 1e-9);
    limit_ = std::isfinite(rounded) && rounded > 0 ? rounded : reach;
    for (const double size : sizes) beyond_ += size > limit_ ? 1 : 0;
}

int EnergyScale::level(double energy) const {
    if (!std::isfinite(energy)) return -1;
    return static_cast<int>(std::lround(std::clamp(energy / limit_, -1.0, 1.0) * kSide)) + kSide;
}

std::string EnergyScale::line_class(double energy) const { return class_of("f", level(energy)); }

std::string EnergyScale::legend(double x, double y, double width, const char* kind, const std::string& title) const {
    constexpr double kHeight = 9;
    std::string text = plot::text_at(x, y - 6, "", "start", title);
    const double step = width / kLevels;
    const char* crisp = "shape-rendering=\"crispEdges\"";
    for (int level = 0; level < kLevels; ++level)
        text += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" {}/>", class_of(kind, level),
                            x + level * step, plot::short_number(y), step, kHeight, crisp);
    const auto label = [&](double at, const char* anchor, const std::string& words) {
        text += plot::text_at(at, y + kHeight + 12, "axis", anchor, words);
    };
    label(x, "start", fmt::format("{}{:.4g}", beyond_ > 0 ? "\u2264 \u2212" : "\u2212", limit_));
    label(x + width / 2, "middle", "0");
    label(x + width, "end", fmt::format("{}{:.4g}", beyond_ > 0 ? "\u2265 " : "", limit_));
    if (not_finite_ > 0) {
        text += fmt::format("<rect class=\"bad\" x=\"{}\" y=\"{}\" width=\"9\" height=\"9\"/>",
                            plot::short_number(x + width + 14), plot::short_number(y));
        text +=
            plot::text_at(x + width + 28, y + kHeight - 1, "", "start", fmt::format("{} of {} not finite", not_finite_, values_));
    }
    return text + "\n";
}

std::string energy_rules(bool dark) {
    std::string rules;
    for (int level = 0; level < kLevels; ++level) {
        const std::string line = colour_of(dark ? kDarkLine : kLightLine, level);
        rules += fmt::format(".e{0}{{fill:{1}}}.f{0}{{stroke:{2};fill:{2}}}", level,
                             colour_of(dark ? kDarkArea : kLightArea, level), line);
    }
    return rules + (dark ? ".bad{fill:#f472b6;stroke:#f472b6}" : ".bad{fill:#db2777;stroke:#db2777}");
}

std::string energy_cells(const EnergyScale& scale, const std::vector<double>& cells, std::int32_t width, std::int32_t height,
                         bool inner) {
    // One path per level, neighbours of a row in one piece: a surface of ten thousand cells stays small.
    std::map<int, std::string> paths;
    const auto edge = [&](std::int32_t at, std::int32_t count) {
        return inner && count > 1 ? std::clamp(static_cast<double>(at), 0.5, count - 0.5) : at;
    };
    for (std::int32_t j = 0; j < height; ++j)
        for (std::int32_t i = 0, end = 0; i < width; i = end) {
            const double* row = cells.data() + static_cast<std::ptrdiff_t>(j) * width;
            const int level = scale.level(row[i]);
            for (end = i + 1; end < width && scale.level(row[end]) == level;) ++end;
            const double left = edge(i, width), right = edge(end, width), low = edge(j, height), high = edge(j + 1, height);
            paths[level] += fmt::format("M{:g} {:g}h{:g}v{:g}h{:g}z", left, low, right - left, high - low, left - right);
        }
    std::string text;
    for (const auto& [level, path] : paths) text += fmt::format("<path class=\"{}\" d=\"{}\"/>", class_of("e", level), path);
    return text;
}

}  // namespace millrace::models
