// Scattering energy on the surface: shares are added as whole numbers, so that the order of the additions does not matter.

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_device.cuh"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr double kUnit = 1099511627776.0;  // 2^40
constexpr double kLargestLoad = 1048576.0;

/// The four cells around a flow: the lower left one and the shares of the far column and row.
struct Corners {
    int cell;
    double right, high;
};

__device__ Corners corners_of(const float* flow, const FlowGridParams& grid) {
    const double column = (static_cast<double>(flow[flow::x]) + 1) / 2 * (grid.width - 1);
    const double row = (static_cast<double>(flow[flow::y]) + 1) / 2 * (grid.height - 1);
    const double left = fmin(fmax(floor(column), 0.0), grid.width - 2.0), low = fmin(fmax(floor(row), 0.0), grid.height - 2.0);
    return {static_cast<int>(low) * grid.width + static_cast<int>(left), column - left, row - low};
}

__device__ double reach_of(const float* flow) { return flow[flow::active] != 0 ? fabs(static_cast<double>(flow[flow::z])) : 1; }

__device__ bool scatters(const float* flow, double load) {
    return fabs(load) <= kLargestLoad && isfinite(flow[flow::x]) && isfinite(flow[flow::y]);
}

__global__ void zero_kernel(long long* sums, std::int64_t count) {
    begin_kernel();
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
         i += std::int64_t{gridDim.x} * blockDim.x)
        sums[i] = 0;
}

/// sums [K, B, S]
__global__ void scatter_kernel(Mat<const float> table, States state, long long* sums, int rows, int samples, int cells,
                               FlowGridParams grid) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= rows) return;
    const float* flow = table.row(k, 0, row);
    const double load = flow[flow::energy] * reach_of(flow);
    if (!scatters(flow, load)) {
        state[k].nonfinite = 1;
        return;
    }
    const Corners c = corners_of(flow, grid);
    const double shares[4] = {(1 - c.right) * (1 - c.high), c.right * (1 - c.high), (1 - c.right) * c.high, c.right * c.high};
    const int cells_of[4] = {c.cell, c.cell + 1, c.cell + grid.width, c.cell + grid.width + 1};
    long long* surface = sums + (static_cast<std::int64_t>(k) * samples + static_cast<int>(flow[flow::owner])) * cells;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (const long long units = __double2ll_rn(load * shares[i] * kUnit);
            units != 0)  // spare rows would all meet in one cell
            atomicAdd(reinterpret_cast<unsigned long long*>(surface + cells_of[i]), static_cast<unsigned long long>(units));
}

__global__ void surface_kernel(const long long* sums, Mat<float> surface, int samples, int cells) {
    begin_kernel();
    const int k = blockIdx.z;
    const std::int64_t count = static_cast<std::int64_t>(samples) * cells;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
         i += std::int64_t{gridDim.x} * blockDim.x)
        surface.row(k, 0, i / cells)[i % cells] = static_cast<float>(static_cast<double>(sums[k * count + i]) / kUnit);
}

__global__ void scatter_backward_kernel(Mat<const float> table, Mat<const float> dsurface, Mat<float> dflow, int rows,
                                        FlowGridParams grid) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= rows) return;
    const float* flow = table.row(k, 0, row);
    float* d = dflow.row(k, 0, row);
    for (int i = 0; i < kFlowColumns; ++i) d[i] = 0;
    if (!scatters(flow, flow[flow::energy] * reach_of(flow))) return;
    const Corners c = corners_of(flow, grid);
    const auto right = static_cast<float>(c.right), high = static_cast<float>(c.high);
    const float* at = dsurface.row(k, 0, static_cast<int>(flow[flow::owner])) + c.cell;
    const float g[4] = {at[0], at[1], at[grid.width], at[grid.width + 1]};
    const float sum = (1 - high) * ((1 - right) * g[0] + right * g[1]) + high * ((1 - right) * g[2] + right * g[3]);
    const float energy = flow[flow::energy], z = flow[flow::z], reach = static_cast<float>(reach_of(flow));
    const bool active = flow[flow::active] != 0;
    const float slope = !active || z == 0 ? 0.0f : z > 0 ? 1.0f : -1.0f;
    d[flow::x] = energy * reach * ((1 - high) * (g[1] - g[0]) + high * (g[3] - g[2])) * static_cast<float>(grid.width - 1) / 2;
    d[flow::y] = energy * reach * ((1 - right) * (g[2] - g[0]) + right * (g[3] - g[1])) * static_cast<float>(grid.height - 1) / 2;
    d[flow::z] = energy * sum * slope;
    d[flow::energy] = reach * sum;
}

}  // namespace

KernelResult make_flow_scatter(Context& c, const Bound& b) {
    const Operand &table = b[flow_scatter::flow], &s = b[flow_scatter::state], &surface = b[flow_scatter::surface];
    if (surface.count() == 0) return make_kernel([] {});
    MILLRACE_LET(sums, zero_table(c, static_cast<std::size_t>(surface.count()) * sizeof(long long)));
    return make_kernel([stream = c.stream, table, s, surface, grid = b.params<FlowGridParams>(), sums] {
        launch(zero_kernel, dim3(std::min(blocks_for(surface.count(), 256), 1024u)), dim3(256), 0, stream, sums, surface.count());
        if (table.rows > 0)
            launch(scatter_kernel, flow_grid(table), dim3(kFlowThreads), 0, stream, table, s, sums, table.rows, surface.rows,
                   surface.cols, grid);
        launch(surface_kernel, element_grid(surface), dim3(256), 0, stream, sums, surface, surface.rows, surface.cols);
    });
}

KernelResult make_flow_scatter_backward(Context& c, const Bound& b) {
    namespace at = flow_scatter_backward;
    const Operand &table = b[at::flow], &dsurface = b[at::dsurface], &dflow = b[at::dflow];
    if (dflow.count() == 0) return make_kernel([] {});
    return make_launch(c, scatter_backward_kernel, flow_grid(table), dim3(kFlowThreads), 0, table, dsurface, dflow, table.rows,
                       b.params<FlowGridParams>());
}

}  // namespace millrace::ops::cuda
