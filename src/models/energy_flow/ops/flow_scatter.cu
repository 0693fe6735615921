// Scattering energy on the surface: shares are added as whole numbers, so that the order of the additions does not matter.

#include "models/energy_flow/ops/flow_device.cuh"
#include "models/energy_flow/ops/flow_rows.h"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

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
    const Landing land(flow, grid);
    if (!land.scatters) {
        state[k].nonfinite = 1;
        return;
    }
    long long* surface = sums + (static_cast<std::int64_t>(k) * samples + static_cast<int>(flow[flow::owner])) * cells;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (const long long units = __double2ll_rn(land.load * land.shares[i] * kLoadUnit);
            units != 0)  // spare rows would all meet in one cell
            atomicAdd(reinterpret_cast<unsigned long long*>(surface + land.cells[i]), static_cast<unsigned long long>(units));
}

__global__ void surface_kernel(const long long* sums, Mat<float> surface, int samples, int cells) {
    begin_kernel();
    const int k = blockIdx.z;
    const std::int64_t count = static_cast<std::int64_t>(samples) * cells;
    for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
         i += std::int64_t{gridDim.x} * blockDim.x)
        surface.row(k, 0, i / cells)[i % cells] = static_cast<float>(static_cast<double>(sums[k * count + i]) / kLoadUnit);
}

__global__ void scatter_backward_kernel(Mat<const float> table, Mat<const float> dsurface, Mat<float> dflow, int rows,
                                        FlowGridParams grid) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= rows) return;
    const float* flow = table.row(k, 0, row);
    scatter_back(flow, dsurface.row(k, 0, static_cast<int>(flow[flow::owner])), grid, dflow.row(k, 0, row));
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
    return make_launch(c, scatter_backward_kernel, flow_grid(table), dim3(kFlowThreads), 0, table, dsurface, dflow, table.rows,
                       b.params<FlowGridParams>());
}

}  // namespace millrace::ops::cuda
