#include "models/energy_flow/flow_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "models/energy_flow/flow_trace.h"
#include "plot/svg.h"

namespace millrace::models {
namespace {

using Paths = std::vector<const FlowPath*>;

constexpr double kWidth = 912, kHeight = 748;
constexpr double kYaw = 0.5, kPitch = 0.42;                             ///< of the eye, in radians
constexpr double kCubeX = 292, kCubeY = 372, kCubeScale = 178;          ///< the cube's middle, half an edge
constexpr double kSideLeft = 600, kSideWidth = 280, kSideHeight = 212;  ///< of the views from front and side
constexpr double kFrontTop = 122, kSideTop = 398, kKeysTop = kHeight - 96;

struct Spot {
    double x, y;
};
using Projection = std::function<Spot(double x, double y, double z)>;

/// How far behind the cube's middle.
double depth(double x, double y) { return -x * std::sin(kYaw) + y * std::cos(kYaw); }

Spot in_cube(double x, double y, double z) {
    return {kCubeX + kCubeScale * (x * std::cos(kYaw) + y * std::sin(kYaw)),
            kCubeY - kCubeScale * (z * std::cos(kPitch) + depth(x, y) * std::sin(kPitch))};
}

std::string at(const Spot& spot) { return plot::short_number(spot.x) + "," + plot::short_number(spot.y); }

bool is_finite(const FlowPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y) && std::isfinite(point.z); }

/// Cells spread by a sequence that fills a square evenly, whatever its beginning; then what the chosen flows spawned.
Paths choose(const FlowTrace& trace, std::int32_t flows) {
    constexpr double kAcross = 0.7548776662466927, kUp = 0.5698402909980532;  // powers of the plastic number's inverse
    const auto cells = static_cast<std::int64_t>(trace.width) * trace.height;
    const std::int64_t wanted = std::min<std::int64_t>(flows, cells);
    std::set<std::int32_t> rows;
    for (std::int64_t i = 0; static_cast<std::int64_t>(rows.size()) < wanted; ++i) {
        double ignored = 0;
        const double across = std::modf(0.5 + static_cast<double>(i) * kAcross, &ignored),
                     up = std::modf(0.5 + static_cast<double>(i) * kUp, &ignored);
        // A sequence that has gone around often enough has little left to find: the rest in order.
        const std::int64_t cell = i < 8 * cells ? static_cast<std::int64_t>(up * trace.height) * trace.width +
                                                      static_cast<std::int64_t>(across * trace.width)
                                                : i - 8 * cells;
        rows.insert(static_cast<std::int32_t>(cell));
    }
    Paths chosen;
    for (const FlowPath& path : trace.paths)
        if (rows.count(path.parent < 0 ? path.row : path.parent) > 0) {
            rows.insert(path.row);
            chosen.push_back(&path);
        }
    return chosen;
}

/// Lines of a path, one for each stretch of a colour, of the segments that `wanted` takes.
std::string lines(const FlowPath& path, const EnergyScale& scale, const Projection& project,
                  const std::function<bool(double z)>& wanted) {
    std::string text, stretch, colour;
    const auto end = [&] {
        if (!stretch.empty()) text += fmt::format("<polyline class=\"{}\" points=\"{}\"/>", colour, stretch);
        stretch.clear();
    };
    const auto segment = [&](const FlowPoint& from, const FlowPoint& to, const std::string& its_colour) {
        if (!is_finite(from) || !is_finite(to) || !wanted((from.z + to.z) / 2)) return end();
        if (its_colour != colour) end();
        colour = its_colour;
        if (stretch.empty()) stretch = at(project(from.x, from.y, from.z));
        stretch += " " + at(project(to.x, to.y, to.z));
    };
    for (std::size_t i = 0; i + 1 < path.points.size(); ++i)
        segment(path.points[i], path.points[i + 1], scale.line_class(path.points[i].energy));
    if (!path.arrived) {
        FlowPoint plane = path.points.back();
        plane.z = path.above ? 1 : -1;
        segment(path.points.back(), plane, scale.line_class(path.deposited) + " projected");
    }
    end();
    return text;
}

std::string dot(const Spot& spot, double radius, const std::string& css_class) {
    return fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", css_class, plot::short_number(spot.x),
                       plot::short_number(spot.y), plot::short_number(radius));
}

/// Where it starts, where it met walls, and its end, larger with its energy.
std::string marks(const FlowPath& path, const EnergyScale& scale, const Projection& project,
                  const std::function<bool(double z)>& wanted, const std::function<bool(const FlowPoint&)>& shows_wall) {
    std::string text;
    const FlowPoint &first = path.points.front(), &last = path.points.back();
    if (is_finite(first) && wanted(path.above ? 1 : -1)) text += dot(project(first.x, first.y, first.z), 1.1, "ink");
    for (const FlowPoint& point : path.points)
        if (point.walls > 0 && is_finite(point) && wanted(point.z) && shows_wall(point))
            text += dot(project(point.x, point.y, point.z), 2, "wall");
    const double plane = path.above ? 1 : -1;
    if (is_finite(last) && wanted(plane)) {
        const double share = std::isfinite(path.deposited) ? std::min(std::abs(path.deposited) / scale.limit(), 1.0) : 1.0;
        text += dot(project(last.x, last.y, plane), 1 + 3 * std::sqrt(share), scale.line_class(path.deposited));
    }
    return text;
}

/// A plane of the cube with its cells.
std::string sheet(const FlowTrace& trace, const EnergyScale& scale, const std::vector<double>& cells, double z, double opacity) {
    const double across = 2.0 / std::max(trace.width - 1, 1), up = 2.0 / std::max(trace.height - 1, 1);
    const Spot origin = in_cube(-1 - across / 2, -1 - up / 2, z), x = in_cube(-1 + across / 2, -1 - up / 2, z),
               y = in_cube(-1 - across / 2, -1 + up / 2, z);
    return fmt::format(
        "<g opacity=\"{}\" shape-rendering=\"crispEdges\" transform=\"matrix({:.4f} {:.4f} {:.4f} {:.4f} {:.2f} {:.2f})\">{}</g>"
        "<path class=\"frame\" d=\"M{} {} {} {}z\"/>\n",
        opacity, x.x - origin.x, x.y - origin.y, y.x - origin.x, y.y - origin.y, origin.x, origin.y,
        energy_cells(scale, cells, trace.width, trace.height, true), at(in_cube(-1, -1, z)), at(in_cube(1, -1, z)),
        at(in_cube(1, 1, z)), at(in_cube(-1, 1, z)));
}

std::string upright(double x, double y, const char* css_class) {
    return fmt::format("<path class=\"{}\" d=\"M{} {}\"/>", css_class, at(in_cube(x, y, -1)), at(in_cube(x, y, 1)));
}

std::string cube(const FlowTrace& trace, const Paths& paths, const EnergyScale& scale) {
    Paths by_depth = paths;
    std::stable_sort(by_depth.begin(), by_depth.end(), [](const FlowPath* a, const FlowPath* b) {
        return depth(a->points.front().x, a->points.front().y) > depth(b->points.front().x, b->points.front().y);
    });
    const auto half = [&](bool upper) {
        const auto wanted = [upper](double z) { return (z >= 0) == upper; };
        std::string text;
        for (const FlowPath* path : by_depth) text += lines(*path, scale, in_cube, wanted);
        for (const FlowPath* path : by_depth) text += marks(*path, scale, in_cube, wanted, [](const FlowPoint&) { return true; });
        return text + "\n";
    };
    std::string text = plot::text_at(16, 108, "title", "start", "From above the front") + "\n";
    text += sheet(trace, scale, trace.below, -1, 0.6) + upright(-1, 1, "faint") + half(false);
    text += sheet(trace, scale, trace.input, 0, 0.75) + half(true);
    text += sheet(trace, scale, trace.above, 1, 0.45);
    for (const auto& [x, y] : {std::pair{-1, -1}, std::pair{1, -1}, std::pair{1, 1}}) text += upright(x, y, "frame");
    for (const auto& [z, name] : {std::pair{1, "z = 1"}, std::pair{0, "z = 0"}, std::pair{-1, "z = \u22121"}}) {
        const Spot corner = in_cube(-1, -1, z);
        text += plot::text_at(corner.x - 6, corner.y + 4, "axis", "end", name);
    }
    const Spot x_axis = in_cube(0, -1, -1), y_axis = in_cube(1, 0, -1);
    text += plot::text_at(x_axis.x - 4, x_axis.y + 18, "axis", "middle", "x from \u22121 to 1");
    text += plot::text_at(y_axis.x + 8, y_axis.y + 16, "axis", "start", "y from \u22121 to 1");
    return text + "\n";
}

std::string view(const Paths& paths, const EnergyScale& scale, const char* title, bool along_x, double top) {
    const auto across = [](double value) { return kSideLeft + kSideWidth * (value + 1) / 2; };
    const auto up = [top](double z) { return top + kSideHeight * (1 - z) / 2; };
    std::string text = plot::text_at(kSideLeft, top - 14, "title", "start", title);
    text += fmt::format(
        "<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/><path class=\"frame\" d=\"M{} {}h{}\"/>\n",
        kSideLeft, top, kSideWidth, kSideHeight, kSideLeft, plot::short_number(up(0)), kSideWidth);
    const Projection project = [&](double x, double y, double z) { return Spot{across(along_x ? x : y), up(z)}; };
    const auto all = [](double) { return true; };
    const auto on_wall = [along_x](const FlowPoint& point) { return std::abs(along_x ? point.x : point.y) > 1 - 1e-6; };
    for (const FlowPath* path : paths) text += lines(*path, scale, project, all);
    for (const FlowPath* path : paths) text += marks(*path, scale, project, all, on_wall);
    for (const int value : {-1, 0, 1}) {
        const std::string name = value < 0 ? "\u22121" : fmt::format("{}", value);
        text += plot::text_at(across(value), top + kSideHeight + 13, "axis", "middle", value == 0 ? (along_x ? "x" : "y") : name);
        text += plot::text_at(kSideLeft - 6, up(value) + 3.5, "axis", "end", value == 0 ? "z = 0" : name);
    }
    return text + "\n";
}

std::string keys(const FlowTrace& trace, const Paths& paths, const EnergyScale& scale) {
    std::int64_t above = 0, arrived = 0, bounces = 0, spawned = 0;
    for (const FlowPath& path : trace.paths) {
        arrived += path.arrived ? 1 : 0;
        above += path.arrived && path.above ? 1 : 0;
        spawned += path.parent >= 0 ? 1 : 0;
        for (const FlowPoint& point : path.points) bounces += point.walls;
    }
    const auto count = static_cast<std::int64_t>(trace.paths.size());
    std::string text = scale.legend(44, kKeysTop + 14, 256, "f", "energy carried by a flow, or laid on a cell");
    const double x = 334;
    const auto key = [&](double left, const std::string& mark, const char* words) {
        text += mark + plot::text_at(left + 10, kKeysTop + 4, "", "start", words);
    };
    const double y = kKeysTop;
    key(x + 4, dot({x + 4, y}, 1.1, "ink"), "start of a flow");
    key(x + 124, dot({x + 124, y}, 2, "wall"), "sent back by a wall");
    key(x + 266, dot({x + 266, y}, 4, scale.line_class(scale.limit())), "end, larger with the energy laid");
    const auto line = [&](int number, const std::string& words) {
        text += plot::text_at(x, y + 8 + 16 * number, "", "start", words);
    };
    line(1, fmt::format("{} of {} flows drawn, chosen evenly over the cells; {} of {} steps used, no noise.", paths.size(), count,
                        trace.steps_used, trace.steps));
    line(2, fmt::format("Of all, {} arrived above, {} below, {} were projected (dashed); {} spawned, {} bounces.", above,
                        arrived - above, count - arrived, spawned, bounces));
    line(3, "Cells: in the middle as the mapper laid them; outside what all flows left, in sum the surface.");
    return text + "\n";
}

}  // namespace

std::string flows_svg(const FlowTrace& trace, std::int32_t flows) {
    const Paths paths = choose(trace, flows);
    std::vector<double> carried;
    for (const FlowPath& path : trace.paths)
        for (const FlowPoint& point : path.points) carried.push_back(point.energy);
    const EnergyScale scale({&carried, &trace.input, &trace.above, &trace.below});
    std::string svg = sample_svg_begin(trace, "Flows carry energy through the cube", kWidth, kHeight);
    svg += cube(trace, paths, scale);
    svg += view(paths, scale, "From the front", true, kFrontTop);
    svg += view(paths, scale, "From the side", false, kSideTop);
    return svg + keys(trace, paths, scale) + "</svg>\n";
}

}  // namespace millrace::models
