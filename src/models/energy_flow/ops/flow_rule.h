#pragma once
// What the counters of a flow table say: whether a flow is left, and when a member stops; what a step does to one row of the
// table, on its way and back. Host and device.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/energy_flow/ops/flow.h"

namespace millrace::ops {

/// Mirrors at -1 and 1 for any overshoot and reports whether the direction changed.
template <class T>
MILLRACE_HD T fold(T v, bool& mirrored) {
    mirrored = false;
    if (std::fabs(v) <= 1) return v;
    T remainder = std::fmod(v + 1, T{4});
    if (remainder < 0) remainder += 4;
    mirrored = remainder > 2;
    return 1 - std::fabs(remainder - 2);
}

inline bool has_stopped(const tensor::Operand& counters, int member) {
    return counters.at<std::int32_t>(member)[flow_counter::stopped] != 0;
}

/// The flag of the member says that a flow is alive.
MILLRACE_HD inline bool any_alive(const std::int32_t* counters) { return counters[flow_counter::alive] != 0; }

/// Sets that flag: the member has not stopped and not all of its flows have arrived.
MILLRACE_HD inline void find_alive(std::int32_t* counters) {
    counters[flow_counter::alive] =
        counters[flow_counter::stopped] == 0 &&
                counters[flow_counter::used] > counters[flow_counter::arrived_up] + counters[flow_counter::arrived_down]
            ? 1
            : 0;
}

/// Ends step p.t with so many arrivals up and down, of a member that has not stopped: the rule of flow_count.
MILLRACE_HD inline void end_step(const FlowCountParams& p, std::int32_t up, std::int32_t down, std::int32_t* counters) {
    const std::int32_t done = up + down;
    counters[flow_counter::steps] = p.t + 1;
    counters[flow_counter::arrived_up] = up;
    counters[flow_counter::arrived_down] = down;
    if (done > counters[flow_counter::most]) {
        counters[flow_counter::waited] = 0;
        counters[flow_counter::most] = done;
    } else if (counters[flow_counter::most] > 0) {
        ++counters[flow_counter::waited];
    }
    if (p.early_stop && p.t + 1 >= p.min_steps &&
        (done >= p.stop_at * counters[flow_counter::used] || counters[flow_counter::waited] >= p.patience))
        counters[flow_counter::stopped] = 1;
    find_alive(counters);
}

/// Ends step p.t in which no flow was alive.
MILLRACE_HD inline void skip_step(const FlowCountParams& p, const std::int32_t* counters, std::int32_t* next) {
    for (int i = 0; i < kFlowCounters; ++i) next[i] = counters[i];
    if (next[flow_counter::stopped] == 0)
        end_step(p, counters[flow_counter::arrived_up], counters[flow_counter::arrived_down], next);
}

/// Moves an alive row: `next` and `moved` hold the row as it was and zeros on entry. `state`: with noise.
template <class T>
MILLRACE_HD void move_alive(const FlowMoveParams& p, const MemberState* state, int row, const T* old, const T* u, T* moved,
                            T* next) {
    moved[moved::gain] = T{0.5} * std::tanh(u[0]);
    T raw[3], squares = 0;
    for (int i = 0; i < 3; ++i) {
        moved[moved::move_x + i] = T{0.5} * std::tanh(u[1 + i]);
        raw[i] = old[i] + moved[moved::move_x + i];
    }
    raw[2] += old[flow::heading] * static_cast<T>(p.drift);
    if (state != nullptr) {
        const auto element = 2 * static_cast<std::uint64_t>(row);
        const auto block =
            base::random_block(state->seed, state->step, state->micro, p.op_number, static_cast<std::uint32_t>(element >> 2));
        const base::NormalPair normal = base::normal_pair(block.v[element & 2], block.v[(element & 2) + 1]);
        const auto noise = static_cast<T>(p.noise);
        raw[0] += noise * (T{2} / static_cast<T>(p.width - 1)) * static_cast<T>(normal.first);
        raw[1] += noise * (T{2} / static_cast<T>(p.height - 1)) * static_cast<T>(normal.second);
    }
    std::int32_t bits = kAlive;
    for (int i = 0; i < 2; ++i) {
        bool mirrored = false;
        next[i] = fold(raw[i], mirrored);
        if (mirrored) bits |= i == 0 ? kMirroredX : kMirroredY;
    }
    next[flow::z] = raw[2] < -1 ? T{-1} : raw[2] > 1 ? T{1} : raw[2];  // a NaN stays one
    if (std::fabs(raw[2]) > 1) bits |= kCutZ;
    for (int i = 0; i < 3; ++i) squares += (next[i] - old[i]) * (next[i] - old[i]);
    next[flow::energy] += moved[moved::gain];
    next[flow::active] = std::fabs(raw[2]) < 1 ? T{1} : T{0};
    const T stride = std::sqrt(squares), length = static_cast<T>(p.spawn_length);
    if (p.max_spawn > 0 && next[flow::active] != 0 && stride > length)
        moved[moved::wanted] = std::fmin(static_cast<T>(p.max_spawn), std::floor(stride / length));
    moved[moved::bits] = static_cast<T>(bits);
}

/// From the gradient `d` of a row behind its step: before it, of place and energy, and of what moved it.
template <class T>
MILLRACE_HD void move_back(const T* d, const T* moved, T (&before)[4], T (&du)[4]) {
    const auto bits = static_cast<std::int32_t>(moved[moved::bits]);
    const bool live = (bits & kAlive) != 0;
    for (int i = 0; i < 4; ++i) before[i] = d[i];
    if (live) {
        if ((bits & kMirroredX) != 0) before[0] = -d[0];
        if ((bits & kMirroredY) != 0) before[1] = -d[1];
        if ((bits & kCutZ) != 0) before[2] = 0;
    }
    for (int i = 0; i < 4; ++i) {
        const T value = moved[i == 0 ? moved::gain : moved::move_x + i - 1], gradient = before[i == 0 ? flow::energy : i - 1];
        du[i] = live ? gradient * (T{0.5} - 2 * value * value) : T{0};
    }
}
static_assert(flow::energy == 3);

/// Children of a row in rows [begin, begin + admitted): they begin where it stood `before` its step, and share its energy.
/// flow_of(row): a row of the table.
template <class T, class FlowOf>
MILLRACE_HD void spawn_children(const T* before, int row, int begin, int admitted, const FlowOf& flow_of) {
    T* parent = flow_of(row);
    parent[flow::energy] /= static_cast<T>(1 + admitted);
    for (int i = 0; i < admitted; ++i) {
        T* child = flow_of(begin + i);
        for (int axis = 0; axis < 3; ++axis) child[axis] = before[axis];
        child[flow::energy] = parent[flow::energy];
        child[flow::heading] = parent[flow::heading];
        child[flow::active] = 1;
        child[flow::owner] = parent[flow::owner];
        child[flow::parent] = static_cast<T>(row);
    }
}

/// What the children of a row give back: to its energy, and to `back`, its gradient before the step, of its place.
template <class T, class GradientOf>
MILLRACE_HD void spawn_back(const T* moved, int row, T* back, bool accumulate, const GradientOf& gradient_of) {
    for (int c = 0; c < kFlowColumns && !accumulate; ++c) back[c] = 0;
    const auto admitted = static_cast<int>(moved[moved::admitted]), first = static_cast<int>(moved[moved::first_child]);
    if (admitted == 0) return;
    T energy = gradient_of(row)[flow::energy];
    for (int i = 0; i < admitted; ++i) {
        T* child = gradient_of(first + i);
        energy += child[flow::energy];
        for (int axis = 0; axis < 3; ++axis) back[axis] += child[axis];
        for (int c = 0; c < kFlowColumns; ++c) child[c] = 0;
    }
    gradient_of(row)[flow::energy] = energy / static_cast<T>(1 + admitted);
}

constexpr double kLoadUnit = 1099511627776.0;  // 2^40: loads are summed as multiples of its inverse

/// What a flow scatters and where. In double, which keeps the place inside a cell exact.
struct Landing {
    int cells[4] = {};
    double shares[4] = {};
    double right = 0, high = 0;  ///< shares of the far column and row
    double reach = 0, load = 0;
    bool scatters = false;

    template <class T>
    MILLRACE_HD Landing(const T* flow, const FlowGridParams& grid) {
        constexpr double kLargestLoad = 1048576.0;
        reach = flow[flow::active] != 0 ? std::fabs(static_cast<double>(flow[flow::z])) : 1;
        load = static_cast<double>(flow[flow::energy]) * reach;
        scatters = std::fabs(load) <= kLargestLoad && std::isfinite(flow[flow::x]) && std::isfinite(flow[flow::y]);
        if (!scatters) return;
        const double column = (static_cast<double>(flow[flow::x]) + 1) / 2 * (grid.width - 1);
        const double row = (static_cast<double>(flow[flow::y]) + 1) / 2 * (grid.height - 1);
        const double left = std::clamp(std::floor(column), 0.0, grid.width - 2.0),
                     low = std::clamp(std::floor(row), 0.0, grid.height - 2.0);
        right = column - left;
        high = row - low;
        const int corner = static_cast<int>(low) * grid.width + static_cast<int>(left);
        for (int i = 0; i < 4; ++i) {
            cells[i] = corner + i / 2 * grid.width + i % 2;
            shares[i] = (i % 2 == 0 ? 1 - right : right) * (i / 2 == 0 ? 1 - high : high);
        }
    }
};

/// d, the gradient of a row, from that of its owner's surface.
template <class T>
MILLRACE_HD void scatter_back(const T* flow, const T* surface, const FlowGridParams& grid, T* d) {
    for (int c = 0; c < kFlowColumns; ++c) d[c] = 0;
    const Landing land(flow, grid);
    if (!land.scatters) return;
    double g[4], sum = 0;
    for (int i = 0; i < 4; ++i) {
        g[i] = static_cast<double>(surface[land.cells[i]]);
        sum += land.shares[i] * g[i];
    }
    const double across = (1 - land.high) * (g[1] - g[0]) + land.high * (g[3] - g[2]);
    const double along = (1 - land.right) * (g[2] - g[0]) + land.right * (g[3] - g[1]);
    const double sign = flow[flow::active] == 0 || flow[flow::z] == 0 ? 0 : flow[flow::z] > 0 ? 1 : -1;
    d[flow::x] = static_cast<T>(land.load * across * (grid.width - 1) / 2);
    d[flow::y] = static_cast<T>(land.load * along * (grid.height - 1) / 2);
    d[flow::z] = static_cast<T>(static_cast<double>(flow[flow::energy]) * sum * sign);
    d[flow::energy] = static_cast<T>(land.reach * sum);
}

}  // namespace millrace::ops
