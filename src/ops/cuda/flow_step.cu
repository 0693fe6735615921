// Beginning, moving and counting flows: one thread per row.

#include "ops/cuda/context.h"
#include "ops/cuda/flow_device.cuh"

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
        counters.row(k, 0, 0)[threadIdx.x] = threadIdx.x == flow_counter::used ? first : 0;
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

/// Mirrors at -1 and 1 for any overshoot and tells whether the direction changed.
__device__ float fold(float v, bool& mirrored) {
    mirrored = false;
    if (fabsf(v) <= 1) return v;
    float rest = fmodf(v + 1, 4);
    if (rest < 0) rest += 4;
    mirrored = rest > 2;
    return 1 - fabsf(rest - 2);
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
__global__ void flow_move_kernel(const __grid_constant__ MoveArgs<T> a) {
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    if (row >= a.rows) return;
    const float* old = a.before.table.row(k, 0, row);
    float next[kFlowColumns], moved[kMovedColumns] = {};
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) next[c] = old[c];
    next[flow::parent] = -1;
    if (a.before.alive(k, row)) {
        const T* u = a.u.row(k, 0, row);
        const float cell[2] = {2.0f / static_cast<float>(a.p.width - 1), 2.0f / static_cast<float>(a.p.height - 1)};
        const float from[3] = {next[0], next[1], next[2]};
        float raw[3];
        moved[moved::gain] = 0.5f * tanhf(load(u));
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            moved[moved::move_x + i] = 0.5f * tanhf(load(u + 1 + i));
            raw[i] = from[i] + moved[moved::move_x + i];
        }
        raw[2] += next[flow::heading] * a.p.drift;
        if (a.p.noise > 0) {
            const MemberState& m = a.state[k];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                raw[i] += a.p.noise * cell[i] *
                          base::random_normal(m.seed, m.step, m.micro, a.p.op_number,
                                              2 * static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(i));
        }
        std::int32_t bits = kAlive;
        bool mirrored = false;
        next[flow::x] = fold(raw[0], mirrored);
        if (mirrored) bits |= kMirroredX;
        next[flow::y] = fold(raw[1], mirrored);
        if (mirrored) bits |= kMirroredY;
        next[flow::z] = raw[2] < -1 ? -1 : raw[2] > 1 ? 1 : raw[2];  // a NaN stays one
        if (fabsf(raw[2]) > 1) bits |= kCutZ;
        next[flow::energy] += moved[moved::gain];
        next[flow::active] = fabsf(raw[2]) < 1 ? 1 : 0;
        float squares = 0;
#pragma unroll
        for (int i = 0; i < 3; ++i) squares += (next[i] - from[i]) * (next[i] - from[i]);
        const float stride = sqrtf(squares);
        if (a.p.max_spawn > 0 && next[flow::active] != 0 && stride > a.p.spawn_length)
            moved[moved::wanted] = fminf(static_cast<float>(a.p.max_spawn), floorf(stride / a.p.spawn_length));
        moved[moved::bits] = static_cast<float>(bits);
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
    const float *d = dafter.row(k, 0, row), *note = moved.row(k, 0, row);
    const auto bits = static_cast<std::int32_t>(note[moved::bits]);
    const bool live = (bits & kAlive) != 0;
    const float denergy = d[flow::energy];
    float draw[3] = {d[0], d[1], d[2]};
    if (live) {
        if ((bits & kMirroredX) != 0) draw[0] = -draw[0];
        if ((bits & kMirroredY) != 0) draw[1] = -draw[1];
        if ((bits & kCutZ) != 0) draw[2] = 0;
    }
    const auto through = [live](float gradient, float value) { return live ? gradient * (0.5f - 2 * value * value) : 0.0f; };
    T* to = du.row(k, 0, row);
    store(to, through(denergy, note[moved::gain]));
#pragma unroll
    for (int i = 0; i < 3; ++i) store(to + 1 + i, through(draw[i], note[moved::move_x + i]));
    float* back = dbefore.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kFlowColumns; ++c) {
        const float value = c < 3 ? draw[c] : c == flow::energy ? denergy : 0.0f;
        back[c] = accumulate ? back[c] + value : value;
    }
}

enum Counted { kUp, kDown, kReflected, kLive, kCounted };
constexpr int kCountThreads = 256;

/// What one block's rows add, to partial [K, blocks, kCounted].
__global__ void flow_count_kernel(Mat<const float> table, Mat<const float> moved, Mat<const std::int32_t> counters,
                                  std::int32_t* partial, int rows, int first_member) {
    __shared__ std::int32_t shared[32];
    begin_kernel();
    const int row = flow_row(), k = first_member + static_cast<int>(blockIdx.z);
    std::int32_t counts[kCounted] = {};
    if (row < rows) {
        const auto bits = static_cast<std::int32_t>(moved.row(k, 0, row)[moved::bits]);
        counts[kReflected] = ((bits & kMirroredX) != 0 ? 1 : 0) + ((bits & kMirroredY) != 0 ? 1 : 0);
        counts[kLive] = (bits & kAlive) != 0 ? 1 : 0;
        const float* flow = table.row(k, 0, row);
        if (row < counters.row(k, 0, 0)[flow_counter::used] && flow[flow::active] == 0)
            counts[flow[flow::z] < 0 ? kDown : kUp] = 1;
    }
    for (int i = 0; i < kCounted; ++i) {
        const std::int32_t sum = block_sum(counts[i], shared);
        if (threadIdx.x == 0) partial[(static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * kCounted + i] = sum;
    }
}

__global__ void flow_rule_kernel(const std::int32_t* partial, Mat<const std::int32_t> counters, Mat<std::int32_t> next,
                                 int blocks, int first_member, FlowCountParams p) {
    __shared__ std::int32_t shared[32];
    begin_kernel();
    const std::int32_t* from = partial + static_cast<std::int64_t>(blockIdx.x) * blocks * kCounted;
    std::int32_t sums[kCounted];
    for (int i = 0; i < kCounted; ++i) {
        std::int32_t sum = 0;
        for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kCountThreads) sum += from[b * kCounted + i];
        sums[i] = block_sum(sum, shared);
    }
    if (threadIdx.x != 0) return;
    const int k = first_member + static_cast<int>(blockIdx.x);
    std::int32_t* c = next.row(k, 0, 0);
    for (int i = 0; i < kFlowCounters; ++i) c[i] = counters.row(k, 0, 0)[i];
    if (c[flow_counter::stopped] != 0) return;
    const std::int32_t done = sums[kUp] + sums[kDown];
    c[flow_counter::steps] = p.t + 1;
    c[flow_counter::flow_steps] += sums[kLive];
    c[flow_counter::reflected] += sums[kReflected];
    c[flow_counter::arrived_up] = sums[kUp];
    c[flow_counter::arrived_down] = sums[kDown];
    if (done > c[flow_counter::most]) {
        c[flow_counter::waited] = 0;
        c[flow_counter::most] = done;
    } else if (c[flow_counter::most] > 0) {
        ++c[flow_counter::waited];
    }
    if (p.early_stop && p.t + 1 >= p.min_steps &&
        (done >= p.stop_at * c[flow_counter::used] || c[flow_counter::waited] >= p.patience))
        c[flow_counter::stopped] = 1;
}

}  // namespace

KernelResult make_flow_begin(Context& c, const Bound& b) {
    const Operand &e = b[flow_begin::e], &table = b[flow_begin::flow], &counters = b[flow_begin::counters];
    if (table.k == 0) return make_kernel([] {});
    return by_real(e.dtype, [&]<class T>(T) -> KernelResult {
        dim3 launches = flow_grid(table);
        launches.x = std::max(launches.x, 1u);  // the counters are there even without rows
        return make_kernel([stream = c.stream, launches, e, table, counters, grid = b.params<FlowGridParams>()] {
            launch(flow_begin_kernel<T>, launches, dim3(kFlowThreads), 0, stream, mat<const T>(e), mat<float>(table),
                   mat<std::int32_t>(counters), table.rows, e.rows * e.cols, e.cols, grid);
        });
    });
}

KernelResult make_flow_begin_backward(Context& c, const Bound& b) {
    const Operand &dflow = b[flow_begin_backward::dflow], &de = b[flow_begin_backward::de];
    if (de.count() == 0) return make_kernel([] {});
    return by_real(de.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, dflow, de] {
            launch(flow_begin_backward_kernel<T>, flow_grid(dflow), dim3(kFlowThreads), 0, stream, mat<const float>(dflow),
                   mat<T>(de), de.rows * de.cols, de.cols);
        });
    });
}

KernelResult make_flow_move(Context& c, const Bound& b) {
    namespace at = flow_move;
    const Operand &before = b[at::before], &u = b[at::u];
    if (before.count() == 0) return make_kernel([] {});
    return by_real(u.dtype, [&]<class T>(T) -> KernelResult {
        MoveArgs<T> a{};
        a.before = flows(before, b[at::counters]);
        a.u = mat<const T>(u);
        a.state = states(b[at::state]);
        a.moved = mat<float>(b[at::moved]);
        a.after = mat<float>(b[at::after]);
        a.rows = before.rows;
        a.p = b.params<FlowMoveParams>();
        return make_kernel([stream = c.stream, grid = flow_grid(before), a] {
            launch(flow_move_kernel<T>, grid, dim3(kFlowThreads), 0, stream, a);
        });
    });
}

KernelResult make_flow_move_backward(Context& c, const Bound& b) {
    namespace at = flow_move_backward;
    const Operand &dafter = b[at::dafter], &moved = b[at::moved], &du = b[at::du], &dbefore = b[at::dbefore];
    if (dafter.count() == 0) return make_kernel([] {});
    return by_real(du.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, dafter, moved, du, dbefore, accumulate = b.accumulates(at::dbefore)] {
            launch(flow_move_backward_kernel<T>, flow_grid(dafter), dim3(kFlowThreads), 0, stream, mat<const float>(dafter),
                   mat<const float>(moved), mat<T>(du), mat<float>(dbefore), dafter.rows, accumulate);
        });
    });
}

KernelResult make_flow_count(Context& c, const Bound& b) {
    const Operand &table = b[flow_count::flow], &moved = b[flow_count::moved], &counters = b[flow_count::counters],
                  &next = b[flow_count::next];
    if (table.k == 0) return make_kernel([] {});
    const unsigned blocks = std::max(blocks_for(table.rows, kCountThreads), 1u);
    const int at_once = static_cast<int>(c.workspace_bytes / (blocks * kCounted * sizeof(std::int32_t)));
    if (at_once == 0) return base::Error{"flow_count over " + std::to_string(table.rows) + " rows: more than its scratch holds"};
    return make_kernel([stream = c.stream, partial = static_cast<std::int32_t*>(c.workspace), table, moved, counters, next,
                        blocks, at_once, p = b.params<FlowCountParams>()] {
        for (int first = 0; first < table.k; first += at_once) {
            const auto members = static_cast<unsigned>(std::min(at_once, table.k - first));
            launch(flow_count_kernel, dim3(blocks, 1, members), dim3(kCountThreads), 0, stream, mat<const float>(table),
                   mat<const float>(moved), mat<const std::int32_t>(counters), partial, table.rows, first);
            launch(flow_rule_kernel, dim3(members), dim3(kCountThreads), 0, stream, partial, mat<const std::int32_t>(counters),
                   mat<std::int32_t>(next), static_cast<int>(blocks), first, p);
        }
    });
}

}  // namespace millrace::ops::cuda
