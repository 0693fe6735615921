// Moving flows.
#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

/// Moves one alive row: `next` and `moved` hold the row as it was and zeros on entry.
template <class T>
void move_alive(const FlowMoveParams& p, const MemberState* state, int row, const T* old, const T* u, T* moved, T* next) {
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
    next[flow::z] = std::clamp(raw[2], T{-1}, T{1});
    if (std::fabs(raw[2]) > 1) bits |= kCutZ;
    for (int i = 0; i < 3; ++i) squares += (next[i] - old[i]) * (next[i] - old[i]);
    next[flow::energy] += moved[moved::gain];
    next[flow::active] = std::fabs(raw[2]) < 1 ? T{1} : T{0};
    const T stride = std::sqrt(squares), length = static_cast<T>(p.spawn_length);
    if (p.max_spawn > 0 && next[flow::active] != 0 && stride > length)
        moved[moved::wanted] = std::min(static_cast<T>(p.max_spawn), std::floor(stride / length));
    moved[moved::bits] = static_cast<T>(bits);
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
    const auto bits = static_cast<std::int32_t>(moved[moved::bits]);
    const bool live = (bits & kAlive) != 0;
    T before[4] = {d[0], d[1], d[2], d[flow::energy]};
    if (live) {
        if ((bits & kMirroredX) != 0) before[0] = -d[0];
        if ((bits & kMirroredY) != 0) before[1] = -d[1];
        if ((bits & kCutZ) != 0) before[2] = 0;
    }
    if (!b.accumulates(at::dbefore)) std::fill_n(back, kFlowColumns, T{0});
    for (int i = 0; i < 4; ++i) back[i] += before[i];
    const auto through = [live](T gradient, T value) { return live ? gradient * (T{0.5} - 2 * value * value) : T{0}; };
    du[0] = through(before[3], moved[moved::gain]);
    for (int i = 0; i < 3; ++i) du[1 + i] = through(before[i], moved[moved::move_x + i]);
}

}  // namespace

MILLRACE_HOST_ROWS(flow_move, before, 100, move_row);
MILLRACE_HOST_ROWS(flow_move_backward, dafter, 20, move_backward_row);

}  // namespace millrace::ops
