// State after a step that was skipped because no flow was alive.

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_device.cuh"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

__global__ void flow_skip_kernel(Mat<const std::int32_t> counters, Mat<const float> before, Mat<float> after,
                                 Mat<std::int32_t> next, int rows, FlowCountParams p) {
    begin_kernel();
    const int k = static_cast<int>(blockIdx.z), row = flow_row();
    const std::int32_t* now = counters.row(k, 0, 0);
    if (any_alive(now)) return;
    if (row == 0) skip_step(p, now, next.row(k, 0, 0));
    if (row >= rows) return;
    const auto* from = reinterpret_cast<const float4*>(before.row(k, 0, row));
    auto* to = reinterpret_cast<float4*>(after.row(k, 0, row));
    to[0] = from[0];
    float4 second = from[1];
    second.w = -1;  // parent
    to[1] = second;
}

__global__ void flow_skip_backward_kernel(Mat<const std::int32_t> counters, Mat<const float> dafter, Mat<float> dbefore,
                                          int rows) {
    begin_kernel();
    const int k = static_cast<int>(blockIdx.z), row = flow_row();
    if (row >= rows || any_alive(counters.row(k, 0, 0))) return;
    const auto* from = reinterpret_cast<const float4*>(dafter.row(k, 0, row));
    auto* to = reinterpret_cast<float4*>(dbefore.row(k, 0, row));
    to[0] = from[0];
    to[1] = from[1];
}

/// Rows to clear: bytes from the beginning of each row.
struct Cleared {
    std::uint8_t* data;
    std::int64_t stride_k, stride_row;  ///< bytes
    int rows, bytes;
};
struct ClearArgs {
    Mat<const std::int32_t> counters, earlier;
    Cleared out[flow_clear::slots - flow_clear::out0];
    int count;
};

__global__ void flow_clear_kernel(const __grid_constant__ ClearArgs a) {
    begin_kernel();
    const int k = static_cast<int>(blockIdx.z);
    if (any_alive(a.counters.row(k, 0, 0)) || !any_alive(a.earlier.row(k, 0, 0))) return;
    for (int i = 0; i < a.count; ++i) {
        const Cleared& out = a.out[i];
        for (int row = static_cast<int>(blockIdx.x); row < out.rows; row += static_cast<int>(gridDim.x)) {
            std::uint8_t* to = out.data + k * out.stride_k + row * out.stride_row;
            const bool whole = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
            const int sixteens = whole ? out.bytes / 16 : 0;
            for (int j = static_cast<int>(threadIdx.x); j < sixteens; j += static_cast<int>(blockDim.x))
                reinterpret_cast<uint4*>(to)[j] = make_uint4(0, 0, 0, 0);
            for (int j = 16 * sixteens + 2 * static_cast<int>(threadIdx.x); j < out.bytes; j += 2 * static_cast<int>(blockDim.x))
                *reinterpret_cast<std::uint16_t*>(to + j) = 0;
        }
    }
}

}  // namespace

static_assert(flow::parent == 7 && kFlowColumns == 8, "a row is two runs of four, parent the last");

KernelResult make_flow_skip(Context& c, const Bound& b) {
    namespace at = flow_skip;
    const Operand& before = b[at::before];
    dim3 grid = flow_grid(before);
    grid.x = std::max(grid.x, 1u);  // the rule is applied even without rows
    return make_launch(c, flow_skip_kernel, grid, dim3(kFlowThreads), 0, b[at::counters], before, b[at::after], b[at::next],
                       before.rows, b.params<FlowCountParams>());
}

KernelResult make_flow_skip_backward(Context& c, const Bound& b) {
    namespace at = flow_skip_backward;
    const Operand& dafter = b[at::dafter];
    return make_launch(c, flow_skip_backward_kernel, flow_grid(dafter), dim3(kFlowThreads), 0, b[at::counters], dafter,
                       b[at::dbefore], dafter.rows);
}

KernelResult make_flow_clear(Context& c, const Bound& b) {
    namespace at = flow_clear;
    ClearArgs a{};
    a.counters = b[at::counters];
    a.earlier = b[at::earlier];
    int rows = 0;
    for (int slot = at::out0; slot < at::slots && b[slot].present(); ++slot) {
        const Operand& out = b[slot];
        const auto size = static_cast<std::int64_t>(tensor::size_of(out.dtype));
        a.out[a.count++] = {static_cast<std::uint8_t*>(out.data), out.stride_k * size, out.stride_row * size, out.rows,
                            static_cast<int>(out.cols * size)};
        rows = std::max(rows, out.rows);
    }
    const dim3 grid(std::min(rows, 1024), 1, b[at::out0].k);
    return make_launch(c, flow_clear_kernel, grid, dim3(128), 0, a);
}

}  // namespace millrace::ops::cuda
