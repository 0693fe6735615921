// Scattering the energies of flows on the surface.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/energy_flow/ops/flow_rows.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

/// Flows [begin, end) of a member, in whole numbers, so that neither their order nor who adds them shows: sums [samples * cells],
/// unsigned, since those beyond all reason wrap. What does not scatter is counted behind them.
template <class T>
void scatter_rows(const Bound& b, int member, int begin, int end, std::uint64_t* sums) {
    namespace at = flow_scatter;
    const std::int64_t cells = b[at::surface].cols, all = b[at::surface].rows * cells;
    const auto& grid = b.params<FlowGridParams>();
    std::fill_n(sums, all + 1, std::uint64_t{0});
    for (int row = begin; row < end; ++row) {
        const T* from = b[at::flow].at<T>(member, 0, row);
        const Landing land(from, grid);
        sums[all] += land.scatters ? 0 : 1;
        std::uint64_t* to = sums + static_cast<std::int64_t>(from[flow::owner]) * cells;
        for (int i = 0; i < 4 && land.scatters; ++i)
            to[land.cells[i]] += static_cast<std::uint64_t>(std::llrint(land.load * land.shares[i] * kLoadUnit));
    }
}

/// The surface from the sums of `pieces` of the rows.
template <class T>
void put_surface(const Bound& b, int member, int pieces, const std::uint64_t* sums) {
    namespace at = flow_scatter;
    const std::int64_t cells = b[at::surface].cols, all = b[at::surface].rows * cells;
    const auto total = [&](std::int64_t place) {
        std::uint64_t sum = 0;
        for (int piece = 0; piece < pieces; ++piece) sum += sums[piece * (all + 1) + place];
        return sum;
    };
    if (total(all) != 0) state_of(b[at::state], member).nonfinite = 1;
    for (int sample = 0; sample < b[at::surface].rows; ++sample) {
        T* to = b[at::surface].at<T>(member, 0, sample);
        for (std::int64_t cell = 0; cell < cells; ++cell)
            to[cell] = static_cast<T>(static_cast<double>(static_cast<std::int64_t>(total(sample * cells + cell))) / kLoadUnit);
    }
}

template <class T>
void scatter_backward_row(const Bound& b, int m, int row) {
    namespace at = flow_scatter_backward;
    const T* from = b[at::flow].at<T>(m, 0, row);
    scatter_back(from, b[at::dsurface].at<T>(m, 0, static_cast<int>(from[flow::owner])), b.params<FlowGridParams>(),
                 b[at::dflow].at<T>(m, 0, row));
}

}  // namespace

MILLRACE_HOST_ROWS(flow_scatter_backward, flow, 20, scatter_backward_row);

namespace ref {

void run_flow_scatter(const Bound& b) {
    namespace at = flow_scatter;
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(b[at::surface].rows) * b[at::surface].cols + 1);
    for (int m = 0; m < b[at::flow].k; ++m) {
        scatter_rows<double>(b, m, 0, b[at::flow].rows, sums.data());
        put_surface<double>(b, m, 1, sums.data());
    }
}

}  // namespace ref

namespace cpu {

KernelResult make_flow_scatter(Context& context, const Bound& bound) {
    namespace at = flow_scatter;
    constexpr int kManyRows = 4096;
    const int rows = bound[at::flow].rows;
    const Blocks pieces(rows, 1, rows >= kManyRows ? context.pool.threads() : 1);
    const std::int64_t size = std::int64_t{bound[at::surface].rows} * bound[at::surface].cols + 1;
    context.scratch.reserve_shared(static_cast<std::size_t>(2 * size * std::max(1, pieces.count)));
    return make_kernel([&context, b = bound, pieces, size]() noexcept {
        auto* sums = reinterpret_cast<std::uint64_t*>(context.scratch.shared());
        for (int m = 0; m < b[at::flow].k; ++m) {
            context.pool.for_each_if(pieces.count > 1, pieces.count, [&](int piece, int) {
                scatter_rows<float>(b, m, pieces.begin(piece), pieces.end(piece), sums + piece * size);
            });
            put_surface<float>(b, m, pieces.count, sums);
        }
    });
}

}  // namespace cpu
}  // namespace millrace::ops
