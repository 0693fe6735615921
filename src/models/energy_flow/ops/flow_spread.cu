// Children of long strides, admitted in row order by a scan over the rows, and what they give back to their parents. Scattering
// energy on the surface: shares are added as whole numbers, so that the order of the additions does not matter.
#include "models/energy_flow/ops/flow_device.cuh"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kScanThreads = 1024;

__device__ std::int32_t wanted_by(const Mat<const float>& moved, int k, int row) {
    return static_cast<std::int32_t>(moved.row(k, 0, row)[moved::wanted]);
}

/// Children wanted by each block of rows, and behind them the rows in use: scratch [members, blocks + 1].
__global__ void spawn_sum_kernel(Mat<const float> moved, Mat<const std::int32_t> counters, std::int32_t* scratch,
                                 int first_member) {
    __shared__ std::int32_t shared[32];
    begin_kernel();
    const int row = flow_row(), k = first_member + static_cast<int>(blockIdx.z), used = counters.row(k, 0, 0)[flow_counter::used];
    std::int32_t* out = scratch + static_cast<std::int64_t>(blockIdx.z) * (gridDim.x + 1);
    const std::int32_t sum = block_sum(row < used ? wanted_by(moved, k, row) : 0, shared);
    if (threadIdx.x != 0) return;
    out[blockIdx.x] = sum;
    if (blockIdx.x == 0) out[gridDim.x] = used;
}

/// Sum of `value` over the threads before this one.
__device__ std::int32_t block_sum_before(std::int32_t value, std::int32_t (&shared)[32]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    std::int32_t sum = value;
    for (int d = 1; d < 32; d *= 2) {
        const std::int32_t other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) shared[warp] = sum;
    __syncthreads();
    std::int32_t before = 0;
    for (int w = 0; w < warp; ++w) before += shared[w];
    __syncthreads();
    return before + sum - value;
}

struct SpawnArgs {
    Mat<const float> before;
    Mat<float> table, moved;
    Mat<std::int32_t> counters;
    const std::int32_t* scratch;
    int rows, first_member;
};

__global__ void spawn_kernel(const __grid_constant__ SpawnArgs a) {
    __shared__ std::int32_t shared[32];
    begin_kernel();
    const int row = flow_row(), k = a.first_member + static_cast<int>(blockIdx.z), blocks = gridDim.x;
    const std::int32_t* sums = a.scratch + static_cast<std::int64_t>(blockIdx.z) * (blocks + 1);
    const int used = sums[blocks];
    std::int32_t earlier = 0, all = 0;
    for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kScanThreads) {
        if (b < static_cast<int>(blockIdx.x)) earlier += sums[b];
        all += sums[b];
    }
    earlier = block_sum(earlier, shared);
    all = block_sum(all, shared);
    float* note = row < used ? a.moved.row(k, 0, row) : nullptr;
    const std::int32_t wanted = note != nullptr ? static_cast<std::int32_t>(note[moved::wanted]) : 0;
    const int begin = used + earlier + block_sum_before(wanted, shared);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const int admitted = min(all, max(0, a.rows - used));
        std::int32_t* c = a.counters.row(k, 0, 0);
        c[flow_counter::used] = used + admitted;
        c[flow_counter::spawned] += admitted;
        c[flow_counter::refused] += all - admitted;
    }
    if (wanted == 0) return;
    const int admitted = min(wanted, max(0, a.rows - begin));
    note[moved::admitted] = static_cast<float>(admitted);
    note[moved::first_child] = static_cast<float>(begin);
    if (admitted == 0) return;
    spawn_children(a.before.row(k, 0, row), row, begin, admitted, [&](int of) { return a.table.row(k, 0, of); });
}

constexpr int kWarps = 8;  // rows of a block in the kernels that give each row a warp
const dim3 kWarpBlock(32, kWarps);
dim3 warp_grid(const Operand& o) { return dim3(blocks_for(o.rows, kWarps), 1, o.k); }
__device__ int warp_row() { return static_cast<int>(blockIdx.x * kWarps + threadIdx.y); }

template <class T>
__global__ void spawn_state_kernel(Mat<const float> table, Mat<T> h, int rows, int cols) {
    begin_kernel();
    const int row = warp_row(), k = blockIdx.z;
    if (row >= rows) return;
    const float parent = table.row(k, 0, row)[flow::parent];
    if (!(parent >= 0)) return;
    const T* from = h.row(k, 0, static_cast<int>(parent));
    T* to = h.row(k, 0, row);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += 32) to[c] = from[c];
}

/// Children's own rows have admitted nothing, so that no row is touched by two threads.
__global__ void spawn_backward_kernel(Mat<const float> moved, Mat<float> dafter, Mat<float> dbefore, int rows, bool accumulate) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= rows) return;
    spawn_back(moved.row(k, 0, row), row, dbefore.row(k, 0, row), accumulate, [&](int of) { return dafter.row(k, 0, of); });
}

__global__ void spawn_state_backward_kernel(Mat<const float> moved, Mat<float> dh, int rows, int cols) {
    begin_kernel();
    const int row = warp_row(), k = blockIdx.z;
    if (row >= rows) return;
    const float* note = moved.row(k, 0, row);
    const auto admitted = static_cast<int>(note[moved::admitted]), first = static_cast<int>(note[moved::first_child]);
    if (admitted == 0) return;
    float* parent = dh.row(k, 0, row);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += 32) {
        float sum = parent[c];
        for (int i = 0; i < admitted; ++i) {
            float* child = dh.row(k, 0, first + i) + c;
            sum += *child;
            *child = 0;
        }
        parent[c] = sum;
    }
}

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

KernelResult make_flow_spawn(Context& c, const Bound& b) {
    namespace at = flow_spawn;
    const Operand &table = b[at::flow], &moved = b[at::moved], &counters = b[at::counters];
    if (table.count() == 0) return make_kernel([] {});
    auto* scratch = static_cast<std::int32_t*>(c.workspace);
    const SpawnArgs a{b[at::before], table, moved, counters, scratch, table.rows, 0};
    const unsigned blocks = blocks_for(table.rows, kScanThreads);
    const int at_once = static_cast<int>(c.workspace_bytes / ((blocks + 1) * sizeof(std::int32_t)));
    if (at_once == 0) return base::Error{"flow_spawn over " + std::to_string(table.rows) + " rows: more than its scratch holds"};
    return make_kernel([stream = c.stream, scratch, members = table.k, moved, counters, blocks, at_once, a] {
        for (int first = 0; first < members; first += at_once) {
            const dim3 grid(blocks, 1, std::min(at_once, members - first));
            SpawnArgs part = a;
            part.first_member = first;
            launch(spawn_sum_kernel, grid, dim3(kScanThreads), 0, stream, moved, counters, scratch, first);
            launch(spawn_kernel, grid, dim3(kScanThreads), 0, stream, part);
        }
    });
}

KernelResult make_flow_spawn_state(Context& c, const Bound& b) {
    const Operand &table = b[flow_spawn_state::flow], &h = b[flow_spawn_state::h];
    return by_real(h.dtype, [&]<class T>(T) {
        return make_launch(c, spawn_state_kernel<T>, warp_grid(h), kWarpBlock, 0, table, h, h.rows, h.cols);
    });
}

KernelResult make_flow_spawn_backward(Context& c, const Bound& b) {
    namespace at = flow_spawn_backward;
    const Operand &moved = b[at::moved], &dafter = b[at::dafter], &dbefore = b[at::dbefore];
    return make_launch(c, spawn_backward_kernel, flow_grid(dafter), dim3(kFlowThreads), 0, moved, dafter, dbefore, dafter.rows,
                       b.accumulates(at::dbefore));
}

KernelResult make_flow_spawn_state_backward(Context& c, const Bound& b) {
    const Operand &moved = b[flow_spawn_state_backward::moved], &dh = b[flow_spawn_state_backward::dh];
    return make_launch(c, spawn_state_backward_kernel, warp_grid(dh), kWarpBlock, 0, moved, dh, dh.rows, dh.cols);
}

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
