#include "models/energy_flow/flow_trace.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"

namespace millrace::models {
namespace {

/// Mirrored at -1 and 1, as flow_move does it.
double folded(double v) {
    bool mirrored = false;
    return ops::fold(v, mirrored);
}

/// Shares of the way from `from`, inside, to `raw` at which a wall is met. A move is shorter than the cube's edge, so that there
/// are two walls at most; the bound is for values that are not a move's.
void walls_between(double from, double raw, std::vector<double>& shares) {
    constexpr int kMost = 4;
    const double side = raw > 1 ? 1 : -1;
    if (!(std::abs(raw) > 1)) return;
    for (int i = 0; i < kMost; ++i) {
        const double wall = side * (1 + 2 * i);
        if (std::abs(wall) >= std::abs(raw)) break;
        shares.push_back(std::clamp((wall - from) / (raw - from), 0.0, 1.0));
    }
}

/// The points of one step: where it met walls, then where it ended.
void add_step(FlowPath& path, const double* after, const double* moved) {
    const FlowPoint from = path.points.back();
    // In the table's precision: whether a wall was met must come out as it did there.
    const auto sum = [](double a, double b) { return double{static_cast<float>(a) + static_cast<float>(b)}; };
    const double raw_x = sum(from.x, moved[ops::moved::move_x]), raw_y = sum(from.y, moved[ops::moved::move_y]);
    std::vector<double> shares;
    walls_between(from.x, raw_x, shares);
    walls_between(from.y, raw_y, shares);
    std::sort(shares.begin(), shares.end());
    for (const double share : shares) {
        if (share == 0) {
            path.points.back().walls += 1;
            continue;
        }
        path.points.push_back({folded(from.x + share * (raw_x - from.x)), folded(from.y + share * (raw_y - from.y)),
                               from.z + share * (after[ops::flow::z] - from.z), from.energy, 1});
    }
    path.points.push_back({after[ops::flow::x], after[ops::flow::y], after[ops::flow::z], after[ops::flow::energy], 0});
}

}  // namespace

std::vector<FlowPath> flow_paths(const EnergyFlowConfig& config, const std::vector<std::vector<double>>& tables,
                                 const std::vector<std::vector<double>>& moves) {
    MILLRACE_ASSERT(!tables.empty() && tables.size() == moves.size() + 1, "a table before each step and one after the last");
    std::vector<FlowPath> paths;
    const std::size_t rows = tables[0].size() / ops::kFlowColumns;
    for (std::size_t row = 0; row < rows; ++row) {
        FlowPath path;
        path.row = static_cast<std::int32_t>(row);
        const auto begin = [&](const double* at) {
            path.points.push_back({at[ops::flow::x], at[ops::flow::y], at[ops::flow::z], at[ops::flow::energy], 0});
        };
        if (path.row < config.cells()) begin(&tables[0][row * ops::kFlowColumns]);
        for (std::size_t t = 0; t < moves.size(); ++t) {
            const double* after = &tables[t + 1][row * ops::kFlowColumns];
            const double* moved = &moves[t][row * ops::kMovedColumns];
            if (path.points.empty() && after[ops::flow::parent] >= 0) {
                path.parent = static_cast<std::int32_t>(after[ops::flow::parent]);
                begin(after);
            } else if (!path.points.empty() && (static_cast<std::int32_t>(moved[ops::moved::bits]) & ops::kAlive) != 0) {
                add_step(path, after, moved);
            }
        }
        if (path.points.empty()) continue;
        const double* last = &tables.back()[row * ops::kFlowColumns];
        const double z = last[ops::flow::z];
        path.arrived = last[ops::flow::active] == 0;
        path.above = (z == 0 ? last[ops::flow::heading] : z) > 0;
        path.deposited = last[ops::flow::energy] * (path.arrived ? 1 : std::abs(z));
        paths.push_back(std::move(path));
    }
    return paths;
}

void scatter_by_plane(const EnergyFlowConfig& config, const std::vector<FlowPath>& paths, std::vector<double>& above,
                      std::vector<double>& below) {
    for (std::vector<double>* plane : {&above, &below}) plane->assign(static_cast<std::size_t>(config.cells()), 0.0);
    for (const FlowPath& path : paths) {
        const FlowPoint& end = path.points.back();
        const double row[ops::kFlowColumns] = {end.x, end.y, 0, path.deposited};  // of a flow that has arrived
        const ops::Landing land(row, {config.width, config.height});
        for (int i = 0; i < 4 && land.scatters; ++i)
            (path.above ? above : below)[static_cast<std::size_t>(land.cells[i])] += land.load * land.shares[i];
    }
}

}  // namespace millrace::models
