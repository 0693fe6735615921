// Scattering the energies of flows on the surface.
#include <algorithm>
#include <cmath>

#include "models/energy_flow/ops/flow_rows.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

template <class T>
void scatter_backward_row(const Bound& b, int m, int row) {
    namespace at = flow_scatter_backward;
    const T* from = b[at::flow].at<T>(m, 0, row);
    scatter_back(from, b[at::dsurface].at<T>(m, 0, static_cast<int>(from[flow::owner])), b.params<FlowGridParams>(),
                 b[at::dflow].at<T>(m, 0, row));
}

}  // namespace

namespace ref {

void run_flow_scatter(const Bound& b) {
    namespace at = flow_scatter;
    const auto clear = [](const Bound& bound, int m, int sample) {
        std::fill_n(bound[at::surface].at<double>(m, 0, sample), bound[at::surface].cols, 0.0);
    };
    const auto scatter = [](const Bound& bound, int m, int row) {
        const double* flow = bound[at::flow].at<double>(m, 0, row);
        const Landing land(flow, bound.params<FlowGridParams>());
        if (!land.scatters) {
            state_of(bound[at::state], m).nonfinite = 1;
            return;
        }
        double* cells = bound[at::surface].at<double>(m, 0, static_cast<int>(flow[flow::owner]));
        for (int i = 0; i < 4; ++i) cells[land.cells[i]] += std::nearbyint(land.load * land.shares[i] * kLoadUnit) / kLoadUnit;
    };
    host::run_rows(b, at::surface, host::each_row(clear));
    host::run_rows(b, at::flow, host::each_row(scatter));
}

}  // namespace ref

namespace cpu {
namespace {

/// Every thread sums whole numbers of its own, so neither their order nor their number shows in the surface.
class FlowScatter {
public:
    FlowScatter(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          grid_(bound.params<FlowGridParams>()),
          cells_(std::int64_t{bound[flow_scatter::surface].rows} * bound[flow_scatter::surface].cols),
          pieces_(bound[flow_scatter::flow].rows, 1, bound[flow_scatter::flow].rows >= kManyRows ? context.pool.threads() : 1) {
        context.scratch.reserve_shared(static_cast<std::size_t>(2 * cells_ * std::max(1, pieces_.count) + 2 * pieces_.count));
    }

    void operator()() noexcept {
        for (int m = 0; m < b_[flow_scatter::flow].k; ++m) {
            context_.pool.for_each_if(pieces_.count > 1, pieces_.count, [&](int piece, int) { scatter(m, piece); });
            finish(m);
        }
    }

private:
    static constexpr int kManyRows = 4096;

    [[nodiscard]] std::uint64_t* sums(int piece) const {
        return reinterpret_cast<std::uint64_t*>(context_.scratch.shared()) + piece * (cells_ + 1);
    }

    void scatter(int member, int piece) noexcept {
        const Operand& table = b_[flow_scatter::flow];
        std::uint64_t* to = sums(piece);  // unsigned: sums beyond all reason wrap instead of being undefined
        std::fill_n(to, cells_ + 1, std::uint64_t{0});
        for (int row = pieces_.begin(piece); row < pieces_.end(piece); ++row) {
            const float* flow = table.at<float>(member, 0, row);
            const Landing at(flow, grid_);
            if (!at.scatters) {
                to[cells_] = 1;
                continue;
            }
            std::uint64_t* surface = to + std::int64_t{static_cast<int>(flow[flow::owner])} * b_[flow_scatter::surface].cols;
            for (int i = 0; i < 4; ++i)
                surface[at.cells[i]] += static_cast<std::uint64_t>(std::llrint(at.load * at.shares[i] * kLoadUnit));
        }
    }

    void finish(int member) noexcept {
        const Operand& surface = b_[flow_scatter::surface];
        for (int piece = 0; piece < pieces_.count; ++piece)
            if (sums(piece)[cells_] != 0) state_of(b_[flow_scatter::state], member).nonfinite = 1;
        for (int sample = 0; sample < surface.rows; ++sample) {
            float* to = surface.at<float>(member, 0, sample);
            for (int cell = 0; cell < surface.cols; ++cell) {
                std::uint64_t sum = 0;
                for (int piece = 0; piece < pieces_.count; ++piece)
                    sum += sums(piece)[std::int64_t{sample} * surface.cols + cell];
                to[cell] = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(sum)) / kLoadUnit);
            }
        }
    }

    Context& context_;
    Bound b_;
    FlowGridParams grid_;
    std::int64_t cells_;
    Blocks pieces_;
};

}  // namespace

KernelResult make_flow_scatter(Context& context, const Bound& bound) { return make_kernel(FlowScatter(context, bound)); }

}  // namespace cpu

MILLRACE_HOST_ROWS(flow_scatter_backward, flow, 20, scatter_backward_row);

}  // namespace millrace::ops
