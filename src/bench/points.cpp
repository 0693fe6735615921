#include "bench/points.h"

#include <fmt/format.h>

#include <sstream>

#include "base/split.h"

namespace millrace::bench {

base::Result<std::vector<Point>> read_points(std::string_view text, const std::string& place, const std::vector<Workload>& all) {
    std::vector<Point> points;
    std::size_t number = 0;
    for (const std::string& line : base::split(text, '\n')) {
        ++number;
        std::istringstream words(line);
        std::string name;
        if (!(words >> name) || name.front() == '#') continue;
        auto chosen = select_workloads(all, {name});
        if (!chosen.ok()) return base::Error{chosen.error().message, fmt::format("{}:{}", place, number)};
        Point& point = points.emplace_back(Point{std::move(chosen->front()), {}});
        for (std::string setting; words >> setting;) point.settings.push_back(setting);
    }
    if (points.empty()) return base::Error{"it names no row; write a line such as: transformer-base model.width=256", place};
    return points;
}

}  // namespace millrace::bench
