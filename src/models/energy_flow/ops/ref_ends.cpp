#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/ref_flow.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

constexpr double kUnit = 1099511627776.0;  // 2^40: loads are summed as multiples of its inverse
constexpr double kLargestLoad = 1048576.0;

/// The four cells around a flow and their shares.
struct Corners {
    std::array<int, 4> cells{};
    std::array<double, 4> shares{};
    double right = 0, high = 0;  ///< shares of the far column and row
};

Corners corners_of(const double* flow, int width, int height) {
    const double column = (flow[flow::x] + 1) / 2 * (width - 1), row = (flow[flow::y] + 1) / 2 * (height - 1);
    const double left = std::clamp(std::floor(column), 0.0, width - 2.0), low = std::clamp(std::floor(row), 0.0, height - 2.0);
    Corners c;
    c.right = column - left;
    c.high = row - low;
    const int first = static_cast<int>(low) * width + static_cast<int>(left);
    c.cells = {first, first + 1, first + width, first + width + 1};
    c.shares = {(1 - c.right) * (1 - c.high), c.right * (1 - c.high), (1 - c.right) * c.high, c.right * c.high};
    return c;
}

bool lays(const double* flow, double load) {
    return std::fabs(load) <= kLargestLoad && std::isfinite(flow[flow::x]) && std::isfinite(flow[flow::y]);
}

double reach_of(const double* flow) { return flow[flow::active] != 0 ? std::fabs(flow[flow::z]) : 1; }

}  // namespace

void run_flow_lay(const Bound& bound) {
    namespace at = flow_lay;
    const auto& grid = bound.params<FlowGridParams>();
    const auto &table = bound[at::flow], &surface = bound[at::surface];
    for (int m = 0; m < table.k; ++m) {
        for (int b = 0; b < surface.rows; ++b) std::fill_n(surface.at<double>(m, 0, b), surface.cols, 0.0);
        for (int row = 0; row < table.rows; ++row) {
            const double* flow = table.at<double>(m, 0, row);
            const double load = flow[flow::energy] * reach_of(flow);
            if (!lays(flow, load)) {
                state_of(bound[at::state], m).nonfinite = 1;
                continue;
            }
            const Corners c = corners_of(flow, grid.width, grid.height);
            double* cells = surface.at<double>(m, 0, static_cast<int>(flow[flow::owner]));
            for (std::size_t i = 0; i < 4; ++i) cells[c.cells[i]] += std::nearbyint(load * c.shares[i] * kUnit) / kUnit;
        }
    }
}

void run_flow_lay_backward(const Bound& bound) {
    namespace at = flow_lay_backward;
    const auto& grid = bound.params<FlowGridParams>();
    const auto &table = bound[at::flow], &dsurface = bound[at::dsurface];
    for (int m = 0; m < table.k; ++m)
        for (int row = 0; row < table.rows; ++row) {
            const double* flow = table.at<double>(m, 0, row);
            double* d = bound[at::dflow].at<double>(m, 0, row);
            std::fill_n(d, kFlowColumns, 0.0);
            const double reach = reach_of(flow), load = flow[flow::energy] * reach;
            if (!lays(flow, load)) continue;
            const Corners c = corners_of(flow, grid.width, grid.height);
            const double* cells = dsurface.at<double>(m, 0, static_cast<int>(flow[flow::owner]));
            std::array<double, 4> g{};
            double sum = 0;
            for (std::size_t i = 0; i < 4; ++i) {
                g[i] = cells[c.cells[i]];
                sum += c.shares[i] * g[i];
            }
            d[flow::energy] = reach * sum;
            if (flow[flow::active] != 0)
                d[flow::z] = flow[flow::energy] * sum * (flow[flow::z] > 0 ? 1 : flow[flow::z] < 0 ? -1 : 0);
            d[flow::x] = load * ((1 - c.high) * (g[1] - g[0]) + c.high * (g[3] - g[2])) * (grid.width - 1) / 2;
            d[flow::y] = load * ((1 - c.right) * (g[2] - g[0]) + c.right * (g[3] - g[1])) * (grid.height - 1) / 2;
        }
}

}  // namespace millrace::ops::ref
