#include <algorithm>
#include <array>
#include <cmath>

#include "models/energy_flow/ops/cpu_rows.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr double kUnit = 1099511627776.0;  // 2^40: loads are summed as multiples of its inverse
constexpr double kLargestLoad = 1048576.0;

/// What a flow lays down and where. Computed in double, which costs nothing here and keeps the place inside a cell exact.
struct Landing {
    std::array<int, 4> cells{};
    std::array<double, 4> shares{};
    double right = 0, high = 0;  ///< shares of the far column and row
    double reach = 0, load = 0;
    bool lays = false;

    Landing(const float* flow, int width, int height) {
        reach = flow[flow::active] != 0 ? std::fabs(static_cast<double>(flow[flow::z])) : 1;
        load = static_cast<double>(flow[flow::energy]) * reach;
        lays = std::fabs(load) <= kLargestLoad && std::isfinite(flow[flow::x]) && std::isfinite(flow[flow::y]);
        if (!lays) return;
        const double column = (static_cast<double>(flow[flow::x]) + 1) / 2 * (width - 1);
        const double row = (static_cast<double>(flow[flow::y]) + 1) / 2 * (height - 1);
        const double left = std::clamp(std::floor(column), 0.0, width - 2.0),
                     low = std::clamp(std::floor(row), 0.0, height - 2.0);
        right = column - left;
        high = row - low;
        const int first = static_cast<int>(low) * width + static_cast<int>(left);
        cells = {first, first + 1, first + width, first + width + 1};
        shares = {(1 - right) * (1 - high), right * (1 - high), (1 - right) * high, right * high};
    }
};

/// Every thread sums whole numbers of its own, so neither their order nor their number shows in the surface.
class FlowLay {
public:
    FlowLay(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          grid_(bound.params<FlowGridParams>()),
          cells_(std::int64_t{bound[flow_lay::surface].rows} * bound[flow_lay::surface].cols),
          pieces_(bound[flow_lay::flow].rows, 1, bound[flow_lay::flow].rows >= kManyRows ? context.pool.threads() : 1) {
        context.scratch.reserve_shared(static_cast<std::size_t>(2 * cells_ * std::max(1, pieces_.count) + 2 * pieces_.count));
    }

    void operator()() noexcept {
        for (int m = 0; m < b_[flow_lay::flow].k; ++m) {
            context_.pool.for_each_if(pieces_.count > 1, pieces_.count, [&](int piece, int) { lay(m, piece); });
            finish(m);
        }
    }

private:
    static constexpr int kManyRows = 4096;

    [[nodiscard]] std::uint64_t* sums(int piece) const {
        return reinterpret_cast<std::uint64_t*>(context_.scratch.shared()) + piece * (cells_ + 1);
    }

    void lay(int member, int piece) noexcept {
        const Operand& table = b_[flow_lay::flow];
        std::uint64_t* to = sums(piece);  // unsigned: sums beyond all reason wrap instead of being undefined
        std::fill_n(to, cells_ + 1, std::uint64_t{0});
        for (int row = pieces_.begin(piece); row < pieces_.end(piece); ++row) {
            const float* flow = table.at<float>(member, 0, row);
            const Landing at(flow, grid_.width, grid_.height);
            if (!at.lays) {
                to[cells_] = 1;
                continue;
            }
            std::uint64_t* surface = to + std::int64_t{static_cast<int>(flow[flow::owner])} * b_[flow_lay::surface].cols;
            for (std::size_t i = 0; i < 4; ++i)
                surface[at.cells[i]] += static_cast<std::uint64_t>(std::llrint(at.load * at.shares[i] * kUnit));
        }
    }

    void finish(int member) noexcept {
        const Operand& surface = b_[flow_lay::surface];
        for (int piece = 0; piece < pieces_.count; ++piece)
            if (sums(piece)[cells_] != 0) state_of(b_[flow_lay::state], member).nonfinite = 1;
        for (int sample = 0; sample < surface.rows; ++sample) {
            float* to = surface.at<float>(member, 0, sample);
            for (int cell = 0; cell < surface.cols; ++cell) {
                std::uint64_t sum = 0;
                for (int piece = 0; piece < pieces_.count; ++piece)
                    sum += sums(piece)[std::int64_t{sample} * surface.cols + cell];
                to[cell] = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(sum)) / kUnit);
            }
        }
    }

    Context& context_;
    Bound b_;
    FlowGridParams grid_;
    std::int64_t cells_;
    Blocks pieces_;
};

void lay_backward(const Bound& b, const FlowGridParams& grid, int member, int row) {
    namespace at = flow_lay_backward;
    const float* from = b[at::flow].at<float>(member, 0, row);
    float* d = b[at::dflow].at<float>(member, 0, row);
    std::fill_n(d, kFlowColumns, 0.0f);
    const Landing land(from, grid.width, grid.height);
    if (!land.lays) return;
    const float* cells = b[at::dsurface].at<float>(member, 0, static_cast<int>(from[flow::owner]));
    std::array<double, 4> g{};
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        g[i] = static_cast<double>(cells[land.cells[i]]);
        sum += land.shares[i] * g[i];
    }
    d[flow::energy] = static_cast<float>(land.reach * sum);
    if (from[flow::active] != 0) {
        const double sign = from[flow::z] > 0 ? 1 : from[flow::z] < 0 ? -1 : 0;
        d[flow::z] = static_cast<float>(static_cast<double>(from[flow::energy]) * sum * sign);
    }
    d[flow::x] =
        static_cast<float>(land.load * ((1 - land.high) * (g[1] - g[0]) + land.high * (g[3] - g[2])) * (grid.width - 1) / 2);
    d[flow::y] =
        static_cast<float>(land.load * ((1 - land.right) * (g[2] - g[0]) + land.right * (g[3] - g[1])) * (grid.height - 1) / 2);
}

Checker& require_grid(Checker& check, const FlowGridParams& grid, const Operand& surface) {
    return check.that(grid.width >= 2 && grid.height >= 2 && grid.width * grid.height == surface.cols,
                      "the surface must have width * height columns, both at least 2");
}

}  // namespace

KernelResult make_flow_lay(Context& context, const Bound& bound) {
    namespace at = flow_lay;
    const Operand &table = bound[at::flow], &to = bound[at::surface];
    Checker check(bound);
    require_table(check, at::flow, table.k, table.rows)
        .state(at::state, table.k)
        .require(at::surface, DType::f32, table.k, 1, to.rows, to.cols);
    require_grid(check, bound.params<FlowGridParams>(), to);
    MILLRACE_TRY(check.status());
    return make_kernel(FlowLay(context, bound));
}

KernelResult make_flow_lay_backward(Context& context, const Bound& bound) {
    namespace at = flow_lay_backward;
    const Operand &table = bound[at::flow], &from = bound[at::dsurface];
    const auto grid = bound.params<FlowGridParams>();
    Checker check(bound);
    require_table(require_table(check, at::flow, table.k, table.rows), at::dflow, table.k, table.rows);
    require_grid(check.require(at::dsurface, DType::f32, table.k, 1, from.rows, from.cols), grid, from);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, grid]() noexcept {
        for_each_piece(context, b[at::flow].k, b[at::flow].rows, 20, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) lay_backward(b, grid, m, row);
        });
    });
}

KernelResult make_flow_begin(Context& context, const Bound& bound) {
    namespace at = flow_begin;
    const Operand &energy = bound[at::e], &table = bound[at::flow];
    const auto grid = bound.params<FlowGridParams>();
    Checker check(bound);
    check.require(at::e, DType::f32, table.k, 1, energy.rows, energy.cols);
    require_counters(require_table(require_grid(check, grid, energy), at::flow, table.k, table.rows), at::counters, table.k);
    check.that(std::int64_t{energy.rows} * energy.cols <= table.rows, "fewer rows than cells: every cell starts a flow");
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, grid]() noexcept {
        const Operand &from = b[at::e], &to = b[at::flow];
        const int cells = from.cols, first = from.rows * cells;
        for_each_piece(context, to.k, to.rows, 10, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) {
                float* at = to.at<float>(m, 0, row);
                std::fill_n(at, kFlowColumns, 0.0f);
                at[flow::heading] = 1;
                at[flow::parent] = -1;
                if (row >= first) continue;
                const int sample = row / cells, cell = row % cells;
                at[flow::x] = static_cast<float>(-1 + 2.0 * (cell % grid.width) / (grid.width - 1));
                at[flow::y] = static_cast<float>(-1 + 2.0 * (cell / grid.width) / (grid.height - 1));
                at[flow::energy] = from.at<float>(m, 0, sample)[cell];
                at[flow::heading] = at[flow::energy] < 0 ? -1.0f : 1.0f;
                at[flow::active] = 1;
                at[flow::owner] = static_cast<float>(sample);
            }
        });
        for (int m = 0; m < to.k; ++m) {
            std::int32_t* counts = b[at::counters].at<std::int32_t>(m);
            std::fill_n(counts, kFlowCounters, 0);
            counts[flow_counter::used] = first;
            find_alive(counts);
        }
    });
}

KernelResult make_flow_begin_backward(Context& context, const Bound& bound) {
    namespace at = flow_begin_backward;
    const Operand &gradient = bound[at::dflow], &to = bound[at::de];
    Checker check(bound);
    require_table(check, at::dflow, to.k, gradient.rows).require(at::de, DType::f32, to.k, 1, to.rows, to.cols);
    check.that(std::int64_t{to.rows} * to.cols <= gradient.rows, "fewer rows than cells");
    MILLRACE_TRY(check.status());
    return make_kernel([&context, from = bound[at::dflow], to]() noexcept {
        for_each_piece(context, to.k, to.rows, to.cols, [&](int m, int begin, int end) {
            for (int sample = begin; sample < end; ++sample)
                for (int cell = 0; cell < to.cols; ++cell)
                    to.at<float>(m, 0, sample)[cell] = from.at<float>(m, 0, std::int64_t{sample} * to.cols + cell)[flow::energy];
        });
    });
}

}  // namespace millrace::ops::cpu
