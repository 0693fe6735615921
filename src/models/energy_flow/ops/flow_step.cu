// Beginning, moving and counting flows, and what a step leaves that was skipped because no flow was alive: one thread per row.
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_device.cuh"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

__device__ float on_line(int index, int count) { return -1 + 2.0f * static_cast<float>(index) / static_cast<float>(count - 1); }

template <class T>
__global__ void flow_begin_kernel(Mat<const T> e, Mat<float> table, Mat<std::int32_t> counters, int rows, int first, int cells,
                                  FlowGridParams grid) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (blockIdx.x == 0 && threadIdx.x < kFlowCounters)
        counters.row(k, 0, 0)[threadIdx.x] = threadIdx.x == flow_counter::used    ? first
                                             : threadIdx.x == flow_counter::alive ? (first > 0 ? 1 : 0)
                                                                                  : 0;
    if (row >= rows) return;
    float values[kFlowColumns] = {};
    values[flow::heading] = 1;
    values[flow::parent] = -1;
    if (row < first) {
        const int sample = row / cells, cell = row % cells;
        values[flow::x] = on_line(cell % grid.width, grid.width);
        values[flow::y] = on_line(cell / grid.width, grid.height);
        values[flow::energy] = load(e.row(k, 0, sample) + cell);
        values[flow::heading] = values[flow::energy] < 0 ? -1 : 1;
        values[flow::active] = 1;
        values[flow::owner] = static_cast<float>(sample);
    }
    float* to = table.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) to[c] = values[c];
}

template <class T>
__global__ void flow_begin_backward_kernel(Mat<const float> dflow, Mat<T> de, int first, int cells) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= first) return;
    store(de.row(k, 0, row / cells) + row % cells, dflow.row(k, 0, row)[flow::energy]);
}

template <class T>
struct MoveArgs {
    Flows before;
    Mat<const T> u;
    States state;
    Mat<float> moved, after;
    int rows;
    FlowMoveParams p;
};

template <class T>
__device__ void move_row(const MoveArgs<T>& a, int k, int row, float (&next)[kFlowColumns], float (&moved)[kMovedColumns]) {
    const float* old = a.before.table.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) next[c] = old[c];
    next[flow::parent] = -1;
    if (a.before.alive(k, row)) {
        const T* from = a.u.row(k, 0, row);
        const float u[4] = {load(from), load(from + 1), load(from + 2), load(from + 3)};
        move_alive(a.p, a.p.noise > 0 ? &a.state[k] : nullptr, row, old, u, moved, next);
    }
    float *to = a.after.row(k, 0, row), *note = a.moved.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) to[c] = next[c];
#pragma unroll
    for (int c = 0; c < kMovedColumns; ++c) note[c] = moved[c];
}

template <class T>
__global__ void flow_move_backward_kernel(Mat<const float> dafter, Mat<const float> moved, Mat<T> du, Mat<float> dbefore,
                                          int rows, bool accumulate) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= rows) return;
    float before[4], moves[4];
    move_back(dafter.row(k, 0, row), moved.row(k, 0, row), before, moves);
    float* back = dbefore.row(k, 0, row);
#pragma unroll
    for (int i = 0; i < 4; ++i) store(du.row(k, 0, row) + i, moves[i]);
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) put(back + c, c < 4 ? before[c] : 0.0f, accumulate);
}

enum Counted { kUp, kDown, kReflected, kLive, kCounted };

/// What counts the rows of a step. `tally` [K, kCounted + 1] holds sums of whole numbers and how many blocks have brought theirs;
/// the last one finds the member's counters and leaves zeros for the next run.
struct CountArgs {
    Mat<const std::int32_t> counters;
    Mat<std::int32_t> next;
    std::int32_t* tally;
    FlowCountParams p;
};

__device__ void apply_rule(const std::int32_t (&sums)[kCounted], const std::int32_t* counters, std::int32_t* c,
                           const FlowCountParams& p) {
    for (int i = 0; i < kFlowCounters; ++i) c[i] = counters[i];
    if (c[flow_counter::stopped] != 0) return;
    c[flow_counter::flow_steps] += sums[kLive];
    c[flow_counter::reflected] += sums[kReflected];
    end_step(p, sums[kUp], sums[kDown], c);
}

/// All threads of the block, each with its row after the step; `valid`: it has one.
__device__ void count_rows(const CountArgs& a, int k, int row, bool valid, const float* flow, std::int32_t bits) {
    __shared__ unsigned long long shared[32];
    constexpr int kField = 16;  // a block's sums are at most twice its threads: four fit one number
    unsigned long long counts = 0;
    const auto count = [&counts](Counted what, bool yes) { counts += yes ? 1ull << kField * what : 0ull; };
    if (valid) {
        count(kReflected, (bits & kMirroredX) != 0);
        count(kReflected, (bits & kMirroredY) != 0);
        count(kLive, (bits & kAlive) != 0);
        const bool arrived = row < a.counters.row(k, 0, 0)[flow_counter::used] && flow[flow::active] == 0;
        count(kDown, arrived && flow[flow::z] < 0);
        count(kUp, arrived && !(flow[flow::z] < 0));
    }
    counts = block_sum(counts, shared);
    if (threadIdx.x != 0) return;
    std::int32_t* tally = a.tally + static_cast<std::int64_t>(k) * (kCounted + 1);
    for (int i = 0; i < kCounted; ++i) atomicAdd(tally + i, static_cast<std::int32_t>(counts >> kField * i & 0xffff));
    __threadfence();
    if (atomicAdd(tally + kCounted, 1) != static_cast<int>(gridDim.x) - 1) return;
    __threadfence();
    std::int32_t sums[kCounted];
    for (int i = 0; i < kCounted; ++i) sums[i] = atomicExch(tally + i, 0);
    atomicExch(tally + kCounted, 0);
    apply_rule(sums, a.counters.row(k, 0, 0), a.next.row(k, 0, 0), a.p);
}

__global__ void flow_count_kernel(Mat<const float> table, Mat<const float> moved, const __grid_constant__ CountArgs a, int rows) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    const bool valid = row < rows;
    const auto bits = valid ? static_cast<std::int32_t>(moved.row(k, 0, row)[moved::bits]) : 0;
    count_rows(a, k, row, valid, valid ? table.row(k, 0, row) : nullptr, bits);
}

/// Moving, and counting when Counting is set.
template <class T, bool Counting>
__global__ void flow_move_kernel(const __grid_constant__ MoveArgs<T> a, const __grid_constant__ CountArgs counting) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    float next[kFlowColumns] = {}, moved[kMovedColumns] = {};
    if (row < a.rows) move_row(a, k, row, next, moved);
    if constexpr (Counting) count_rows(counting, k, row, row < a.rows, next, static_cast<std::int32_t>(moved[moved::bits]));
}

/// The arguments with the table of their tally, which the kernel holds.
struct Counting {
    DeviceTable held;
    CountArgs args;
    explicit operator CountArgs() const { return args; }
};
base::Result<Counting> counting_of(Context& c, const Bound& b) {
    const Operand& counters = b[flow_count::counters];
    MILLRACE_LET(tally, zero_table(c, static_cast<std::size_t>(counters.k) * (kCounted + 1) * sizeof(std::int32_t)));
    const CountArgs args{counters, b[flow_count::next], static_cast<std::int32_t*>(tally), b.params<FlowCountParams>()};
    return Counting{std::move(tally), args};
}

template <class T>
MoveArgs<T> move_args(const Bound& b) {
    namespace at = flow_move;
    return {{b[at::before], b[at::counters]}, b[at::u], b[at::state], b[at::moved], b[at::after], b[at::before].rows,
            b.params<FlowMoveParams>()};
}

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

KernelResult make_flow_begin(Context& c, const Bound& b) {
    const Operand &e = b[flow_begin::e], &table = b[flow_begin::flow], &counters = b[flow_begin::counters];
    dim3 launches = flow_grid(table);
    launches.x = std::max(launches.x, 1u);  // the counters are there even without rows
    return by_real(e.dtype, [&]<class T>(T) {
        return make_launch(c, flow_begin_kernel<T>, launches, dim3(kFlowThreads), 0, e, table, counters, table.rows,
                           e.rows * e.cols, e.cols, b.params<FlowGridParams>());
    });
}

KernelResult make_flow_begin_backward(Context& c, const Bound& b) {
    const Operand &dflow = b[flow_begin_backward::dflow], &de = b[flow_begin_backward::de];
    return by_real(de.dtype, [&]<class T>(T) {
        return make_launch(c, flow_begin_backward_kernel<T>, flow_grid(dflow), dim3(kFlowThreads), 0, dflow, de,
                           de.rows * de.cols, de.cols);
    });
}

KernelResult make_flow_move(Context& c, const Bound& b) {
    const Operand& before = b[flow_move::before];
    return by_real(b[flow_move::u].dtype, [&]<class T>(T) {
        return make_launch(c, flow_move_kernel<T, false>, flow_grid(before), dim3(kFlowThreads), 0, move_args<T>(b), CountArgs{});
    });
}

/// flow_move and the flow_count behind it as one launch, where nothing is spawned between them.
Match match_counted_move(const Context&, const Window& records) {
    if (records.size() < 2 || records[1].record->op != &flow_count::kDef) return {};
    const Bound &move = records[0], &count = records[1];
    const bool fits = move[flow_move::before].count() > 0 && move[flow_move::after].data == count[flow_count::flow].data &&
                      move[flow_move::moved].data == count[flow_count::moved].data &&
                      move[flow_move::counters].data == count[flow_count::counters].data &&
                      move[flow_move::before].rows == count[flow_count::flow].rows;
    return Match::first(fits ? 2 : 0);
}

KernelResult make_counted_move(Context& c, std::span<const Bound> records) {
    const Bound &move = records[0], &count = records[1];
    MILLRACE_LET(counting, counting_of(c, count));
    return by_real(move[flow_move::u].dtype, [&]<class T>(T) {
        return make_launch(c, flow_move_kernel<T, true>, flow_grid(move[flow_move::before]), dim3(kFlowThreads), 0,
                           move_args<T>(move), counting);
    });
}

KernelResult make_flow_move_backward(Context& c, const Bound& b) {
    namespace at = flow_move_backward;
    const Operand &dafter = b[at::dafter], &moved = b[at::moved], &du = b[at::du], &dbefore = b[at::dbefore];
    return by_real(du.dtype, [&]<class T>(T) {
        return make_launch(c, flow_move_backward_kernel<T>, flow_grid(dafter), dim3(kFlowThreads), 0, dafter, moved, du, dbefore,
                           dafter.rows, b.accumulates(at::dbefore));
    });
}

KernelResult make_flow_count(Context& c, const Bound& b) {
    const Operand &table = b[flow_count::flow], &moved = b[flow_count::moved];
    MILLRACE_LET(counting, counting_of(c, b));
    dim3 grid = flow_grid(table);
    grid.x = std::max(grid.x, 1u);  // the rule is applied even without rows
    return make_launch(c, flow_count_kernel, grid, dim3(kFlowThreads), 0, table, moved, counting, table.rows);
}

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
