#include "models/energy_flow/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::models {
namespace {

std::int32_t chunk_steps(const EnergyFlowConfig& config, std::int32_t rows, std::int64_t step_bytes) {
    const std::int32_t steps = config.step_count();
    constexpr std::int64_t kBudget = std::int64_t{4} << 30;
    const bool automatic = config.gradient_budget == 0;
    const std::int64_t held = (automatic ? kBudget : config.gradient_budget) / std::max<std::int64_t>(step_bytes, 1);
    const std::int32_t limit = automatic && config.recompute != Recompute::none ? (steps + 3) / 4 : steps;
    std::int64_t most = std::clamp<std::int64_t>(held, 1, limit);
    if (config.skip_arrived) {
        // A chunk is skipped as a whole: eighths of the steps, unless that leaves products too small to be worth it.
        constexpr std::int64_t kWork = std::int64_t{10} << 30;
        const std::int64_t flops = std::int64_t{12} * rows * config.hidden * config.hidden * config.layers;
        most = std::min(most, std::max<std::int64_t>((steps + 7) / 8, kWork / std::max<std::int64_t>(flops, 1)));
    }
    const std::int64_t chunks = (steps + most - 1) / most;  // of equal length, as far as that goes
    return static_cast<std::int32_t>((steps + chunks - 1) / chunks);
}

}  // namespace

std::vector<std::pair<std::int32_t, std::int32_t>> EnergyFlowConfig::chunks(std::int32_t rows, bool training,
                                                                            std::int64_t step_bytes) const {
    const std::int32_t total = step_count();
    const std::int32_t length = training ? chunk_steps(*this, rows, step_bytes) : (total + 7) / 8;
    std::vector<std::pair<std::int32_t, std::int32_t>> found;
    // Undisturbed flows arrive together: where steps are skipped, a border lies there, and the rest is counted off from it.
    const std::int32_t arrival = skip_arrived ? std::min(total, static_cast<std::int32_t>(std::ceil(1 / drift()))) : total;
    for (std::int32_t end = arrival; end > 0; end -= length) found.emplace_back(std::max(0, end - length), end);
    std::reverse(found.begin(), found.end());
    for (std::int32_t first = arrival; first < total; first += length) found.emplace_back(first, std::min(total, first + length));
    return found;
}

const char* name_of(Recompute recompute) {
    constexpr const char* kNames[] = {"none", "gates", "step"};
    return kNames[static_cast<int>(recompute)];
}

std::int32_t EnergyFlowConfig::least_steps() const {
    return min_steps > 0 ? min_steps : static_cast<std::int32_t>(std::ceil(arrive * step_count()));
}

std::int32_t EnergyFlowConfig::rows(std::int32_t samples) const {
    return static_cast<std::int32_t>(static_cast<double>(samples) * cells() * (1 + headroom));
}

base::Status validate(const EnergyFlowConfig& c) {
    if (c.width < 2 || c.height < 2)
        return base::Error{
            fmt::format("model.width = {} and model.height = {}: a surface needs at least 2 x 2 cells", c.width, c.height)};
    if (c.step_count() < 1)
        return base::Error{fmt::format("model.depth = {} gives no step; model.depth = 2 would be the least", c.depth)};
    if (!(c.arrive * c.step_count() > 0.5))
        return base::Error{
            fmt::format("model.arrive = {} of {} steps is less than half a step; a larger model.arrive would be right", c.arrive,
                        c.step_count())};
    if (c.hidden % 2 != 0)
        return base::Error{fmt::format("model.hidden = {} must be even: the energy head has half of it", c.hidden)};
    if (c.headroom > 0 && !(c.spawn_length > 0))
        return base::Error{fmt::format("model.spawn_length = {} must be positive when model.headroom > 0", c.spawn_length)};
    if (const TextBridgeConfig& t = c.text_bridge; t.enabled && (t.heads < 1 || t.width % t.heads != 0))
        return base::Error{
            fmt::format("model.text_bridge.width = {} must be a multiple of model.text_bridge.heads = {}", t.width, t.heads)};
    if (c.gradient_budget < 0)
        return base::Error{fmt::format("model.gradient_budget = {} must not be negative", c.gradient_budget)};
    return base::ok();
}

base::Status check_capacity(const EnergyFlowConfig& c, std::int32_t samples) {
    const double needed = static_cast<double>(samples) * c.cells(), capacity = std::floor(needed * (1 + c.headroom));
    if (capacity < needed)
        return base::Error{
            fmt::format("model.headroom = {} gives {:.0f} rows to the {:.0f} flows of {} samples on {} x {} cells; "
                        "model.headroom = 0 would be the least",
                        c.headroom, capacity, needed, samples, c.width, c.height)};
    // Weight gradients go over the rows of all steps at once; each has up to four states.
    const double widest = capacity * (c.step_count() + 1) * 4 * std::max(c.hidden, 2);
    if (constexpr double kMost = 1e12;
        widest > kMost || capacity * (c.step_count() + 1) > std::numeric_limits<std::int32_t>::max())
        return base::Error{
            fmt::format("{} samples on {} x {} cells are {:.0f} flows of {} steps, more than a program can hold; a "
                        "smaller batch would be right",
                        samples, c.width, c.height, capacity, c.step_count())};
    return base::ok();
}

}  // namespace millrace::models
