#include <algorithm>
#include <cmath>
#include <vector>

#include "models/energy_flow/ops/flow_rule.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

using tensor::DType;
using tensor::Operand;

std::int32_t* counters_of(const Bound& b, int slot, int member) { return b[slot].at<std::int32_t>(member); }

template <class T>
void begin_row(const Bound& b, int m, int row) {
    const auto& grid = b.params<FlowGridParams>();
    const Operand& e = b[flow_begin::e];
    T* to = b[flow_begin::flow].at<T>(m, 0, row);
    std::fill_n(to, kFlowColumns, T{0});
    to[flow::heading] = 1;
    to[flow::parent] = -1;
    if (row >= e.rows * e.cols) return;
    const auto on_line = [](int index, int count) { return static_cast<T>(-1 + 2.0 * index / (count - 1)); };
    const int sample = row / e.cols, cell = row % e.cols;
    to[flow::x] = on_line(cell % grid.width, grid.width);
    to[flow::y] = on_line(cell / grid.width, grid.height);
    to[flow::energy] = e.at<T>(m, 0, sample)[cell];
    to[flow::heading] = to[flow::energy] < 0 ? T{-1} : T{1};
    to[flow::active] = 1;
    to[flow::owner] = static_cast<T>(sample);
}

void begin_counters(const Bound& b) {
    for (int m = 0; m < b[flow_begin::flow].k; ++m) {
        std::int32_t* counters = counters_of(b, flow_begin::counters, m);
        std::fill_n(counters, kFlowCounters, 0);
        counters[flow_counter::used] = b[flow_begin::e].rows * b[flow_begin::e].cols;
        find_alive(counters);
    }
}

template <class T>
void begin_backward_row(const Bound& b, int m, int sample) {
    const Operand& de = b[flow_begin_backward::de];
    const Operand& dflow = b[flow_begin_backward::dflow];
    for (int cell = 0; cell < de.cols; ++cell)
        de.at<T>(m, 0, sample)[cell] = dflow.at<T>(m, 0, std::int64_t{sample} * de.cols + cell)[flow::energy];
}

/// Children in row order; a few additions per row, so one thread does it.
template <class T>
void spawn(const Bound& b) {
    namespace at = flow_spawn;
    const Operand& table = b[at::flow];
    for (int m = 0; m < table.k; ++m) {
        std::int32_t* counters = counters_of(b, at::counters, m);
        const int used = counters[flow_counter::used];  // children of this step spawn in the next
        int begin = used;
        for (int row = 0; row < used; ++row) {
            T* moved = b[at::moved].at<T>(m, 0, row);
            const auto wanted = static_cast<int>(moved[moved::wanted]);
            if (wanted == 0) continue;
            const int admitted = std::min(wanted, std::max(0, table.rows - begin));
            moved[moved::admitted] = static_cast<T>(admitted);
            moved[moved::first_child] = static_cast<T>(begin);
            spawn_children(b[at::before].at<T>(m, 0, row), row, begin, admitted, [&](int of) { return table.at<T>(m, 0, of); });
            counters[flow_counter::spawned] += admitted;
            counters[flow_counter::refused] += wanted - admitted;
            begin += wanted;
        }
        counters[flow_counter::used] = std::min(begin, table.rows);
    }
}

/// A parent is never born in the same step, so no row is read and written.
template <class T>
void spawn_state_row(const Bound& b, int m, int row) {
    const Operand& h = b[flow_spawn_state::h];
    const T parent = b[flow_spawn_state::flow].at<T>(m, 0, row)[flow::parent];
    if (parent >= 0) std::copy_n(h.at<T>(m, 0, static_cast<int>(parent)), h.cols, h.at<T>(m, 0, row));
}

template <class T>
void spawn_backward_row(const Bound& b, int m, int row) {
    namespace at = flow_spawn_backward;
    spawn_back(b[at::moved].at<T>(m, 0, row), row, b[at::dbefore].at<T>(m, 0, row), b.accumulates(at::dbefore),
               [&](int of) { return b[at::dafter].at<T>(m, 0, of); });
}

template <class T>
void spawn_state_backward_row(const Bound& b, int m, int row) {
    const Operand& dh = b[flow_spawn_state_backward::dh];
    const T* moved = b[flow_spawn_state_backward::moved].at<T>(m, 0, row);
    const auto admitted = static_cast<int>(moved[moved::admitted]), first = static_cast<int>(moved[moved::first_child]);
    for (int k = 0; k < admitted; ++k) {
        T *parent = dh.at<T>(m, 0, row), *child = dh.at<T>(m, 0, first + k);
        for (int c = 0; c < dh.cols; ++c) parent[c] += child[c];
        std::fill_n(child, dh.cols, T{0});
    }
}

template <class T>
void count(const Bound& b) {
    namespace at = flow_count;
    const Operand& table = b[at::flow];
    for (int m = 0; m < table.k; ++m) {
        std::int32_t* next = counters_of(b, at::next, m);
        std::copy_n(counters_of(b, at::counters, m), kFlowCounters, next);
        if (next[flow_counter::stopped] != 0) continue;
        int up = 0, down = 0;
        for (int row = 0; row < table.rows; ++row) {
            const auto bits = static_cast<std::int32_t>(b[at::moved].at<T>(m, 0, row)[moved::bits]);
            next[flow_counter::reflected] += ((bits & kMirroredX) != 0 ? 1 : 0) + ((bits & kMirroredY) != 0 ? 1 : 0);
            next[flow_counter::flow_steps] += (bits & kAlive) != 0 ? 1 : 0;
            const T* flow = table.at<T>(m, 0, row);
            if (row >= next[flow_counter::used] || flow[flow::active] != 0) continue;
            ++(flow[flow::z] < 0 ? down : up);
        }
        end_step(b.params<FlowCountParams>(), up, down, next);
    }
}

template <class T>
void skip_row(const Bound& b, int m, int row) {
    namespace at = flow_skip;
    if (any_alive(counters_of(b, at::counters, m))) return;
    T* after = b[at::after].at<T>(m, 0, row);
    std::copy_n(b[at::before].at<T>(m, 0, row), kFlowColumns, after);
    after[flow::parent] = -1;
}

void skip_counters(const Bound& b) {
    for (int m = 0; m < b[flow_skip::before].k; ++m)
        if (const std::int32_t* counters = counters_of(b, flow_skip::counters, m); !any_alive(counters))
            skip_step(b.params<FlowCountParams>(), counters, counters_of(b, flow_skip::next, m));
}

template <class T>
void skip_backward_row(const Bound& b, int m, int row) {
    namespace at = flow_skip_backward;
    if (!any_alive(counters_of(b, at::counters, m)))
        std::copy_n(b[at::dafter].at<T>(m, 0, row), kFlowColumns, b[at::dbefore].at<T>(m, 0, row));
}

template <class T>
void clear_rows(const Bound& b, int slot, int m, int begin, int end) {
    if (any_alive(counters_of(b, flow_clear::counters, m)) || !any_alive(counters_of(b, flow_clear::earlier, m))) return;
    for (int row = begin; row < end; ++row) std::fill_n(b[slot].at<T>(m, 0, row), b[slot].cols, T{0});
}

template <class T>
void move_row(const Bound& b, int m, int row) {
    namespace at = flow_move;
    const auto& p = b.params<FlowMoveParams>();
    const T* old = b[at::before].at<T>(m, 0, row);
    T *next = b[at::after].at<T>(m, 0, row), *moved = b[at::moved].at<T>(m, 0, row);
    std::copy_n(old, kFlowColumns, next);
    std::fill_n(moved, kMovedColumns, T{0});
    next[flow::parent] = -1;
    if (old[flow::active] == 0 || has_stopped(b[at::counters], m)) return;
    const MemberState* state = p.noise > 0 ? &state_of(b[at::state], m) : nullptr;
    move_alive(p, state, row, old, b[at::u].at<T>(m, 0, row), moved, next);
}

template <class T>
void move_backward_row(const Bound& b, int m, int row) {
    namespace at = flow_move_backward;
    const T *d = b[at::dafter].at<T>(m, 0, row), *moved = b[at::moved].at<T>(m, 0, row);
    T *du = b[at::du].at<T>(m, 0, row), *back = b[at::dbefore].at<T>(m, 0, row);
    T before[4], moves[4];
    move_back(d, moved, before, moves);
    std::copy_n(moves, 4, du);
    if (!b.accumulates(at::dbefore)) std::fill_n(back, kFlowColumns, T{0});
    for (int i = 0; i < 4; ++i) back[i] += before[i];
}

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

MILLRACE_HOST_ROWS(flow_begin, flow, kFlowColumns, begin_row, begin_counters);
MILLRACE_HOST_ROWS(flow_begin_backward, de, bound[flow_begin_backward::de].cols, begin_backward_row);
MILLRACE_HOST_AT_ONCE(flow_spawn, spawn);
MILLRACE_HOST_ROWS(flow_spawn_state, h, bound[flow_spawn_state::h].cols, spawn_state_row);
MILLRACE_HOST_ROWS(flow_spawn_backward, dafter, kFlowColumns, spawn_backward_row);
MILLRACE_HOST_ROWS(flow_spawn_state_backward, dh, bound[flow_spawn_state_backward::dh].cols, spawn_state_backward_row);
MILLRACE_HOST_AT_ONCE(flow_count, count);
MILLRACE_HOST_ROWS(flow_skip, before, 2 * kFlowColumns, skip_row, skip_counters);
MILLRACE_HOST_ROWS(flow_skip_backward, dafter, 2 * kFlowColumns, skip_backward_row);

namespace ref {

void run_flow_clear(const Bound& b) {
    for (int slot = flow_clear::out0; slot < flow_clear::slots && b[slot].present(); ++slot)
        for (int m = 0; m < b[slot].k; ++m) clear_rows<double>(b, slot, m, 0, b[slot].rows);
}

}  // namespace ref

namespace cpu {

KernelResult make_flow_clear(Context& context, const Bound& bound) {
    namespace at = flow_clear;
    return make_kernel([&context, b = bound]() noexcept {
        for (int slot = at::out0; slot < at::slots && b[slot].present(); ++slot)
            for_each_piece(context, b[slot].k, b[slot].rows, b[slot].cols,
                           [&](int m, int begin, int end) { clear_rows<float>(b, slot, m, begin, end); });
    });
}

}  // namespace cpu

MILLRACE_HOST_ROWS(flow_move, before, 100, move_row);
MILLRACE_HOST_ROWS(flow_move_backward, dafter, 20, move_backward_row);

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
