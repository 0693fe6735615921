#include "search/sampler.h"

#include <fmt/format.h>

#include "base/nearest.h"
#include "search/stream.h"

namespace millrace::search {
namespace {

constexpr int64_t kLargestGrid = 1000000;

/// All combinations; the last parameter changes fastest, an alternative comes first.
base::Result<std::unique_ptr<Sampler>> make_grid_sampler(const Space& space, int64_t points) {
    if (points < 2 || points > kLargestGrid)
        return base::Error{
            fmt::format("a grid needs from 2 to {} points in each continuous range, not {}", kLargestGrid, points)};
    std::vector<std::vector<double>> levels;
    int64_t combinations = 1;
    for (const Parameter& parameter : space.parameters) {
        const int64_t cells = parameter.cells();
        const int64_t count = cells == 0 ? points : cells;
        combinations = count > kLargestGrid ? kLargestGrid + 1 : combinations * (count + (parameter.alternative ? 1 : 0));
        if (combinations > kLargestGrid)
            return base::Error{
                fmt::format("the grid has more than {} combinations; fewer points, or the samplers random and tpe, will do",
                            kLargestGrid),
                parameter.place};
        std::vector<double>& level = levels.emplace_back();
        if (parameter.alternative) level.push_back(*parameter.alternative);
        for (int64_t i = 0; i < count; ++i) {
            const double at = static_cast<double>(i);
            level.push_back(parameter.range_from_unit(cells == 0 ? at / static_cast<double>(points - 1)
                                                                 : (at + 0.5) / static_cast<double>(cells)));
        }
    }
    const auto point = [levels = std::move(levels)](int64_t number) {
        Configuration configuration(levels.size());
        for (size_t i = levels.size(); i-- > 0;) {
            const auto size = static_cast<int64_t>(levels[i].size());
            configuration[i] = levels[i][static_cast<size_t>(number % size)];
            number /= size;
        }
        return configuration;
    };
    return std::unique_ptr<Sampler>{std::make_unique<PointSampler>(point, combinations)};
}

}  // namespace

Configuration random_configuration(const Space& space, uint64_t seed, int64_t number) {
    Stream stream(seed, number, Purpose::uniform_draw);
    std::vector<double> unit(space.size());
    for (double& coordinate : unit) coordinate = stream.uniform();
    return space.from_unit(unit);
}

base::Result<std::unique_ptr<Sampler>> make_sampler(const Space& space, const SamplerOptions& options) {
    MILLRACE_ASSERT(space.size() > 0, "a space without parameters");
    if (options.name == "random")
        return std::unique_ptr<Sampler>{std::make_unique<PointSampler>(
            [space, seed = options.seed](int64_t number) { return random_configuration(space, seed, number); })};
    if (options.name == "sobol") return make_sobol_sampler(space, options.seed);
    if (options.name == "grid") return make_grid_sampler(space, options.grid_points);
    if (options.name == "tpe") return make_tpe_sampler(space, options);
    if (options.name == "cmaes") return make_cmaes_sampler(space, options);
    const std::vector<std::string> names = {"random", "sobol", "grid", "tpe", "cmaes"};
    const std::string close = base::nearest_name(options.name, names);
    return base::Error{fmt::format(
        "there is no sampler {}; {}", base::quoted_text(options.name.substr(0, 80)),
        close.empty() ? fmt::format("take one of {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", close))};
}

}  // namespace millrace::search
