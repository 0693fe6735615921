#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "models/energy_flow/ops/cpu_rows.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Mirrors at -1 and 1 for any overshoot and tells whether the direction changed.
float fold(float v, bool& mirrored) {
    mirrored = false;
    if (std::fabs(v) <= 1) return v;
    float rest = std::fmod(v + 1, 4.0f);
    if (rest < 0) rest += 4;
    mirrored = rest > 2;
    return 1 - std::fabs(rest - 2);
}

/// Moves one alive row: `next` and `moved` hold the row as it was and zeros on entry.
void move_row(const FlowMoveParams& p, const MemberState* state, int row, const float* old, const float* u, float* moved,
              float* next) {
    moved[moved::gain] = 0.5f * std::tanh(u[0]);
    float raw[3], squares = 0;
    for (int i = 0; i < 3; ++i) {
        moved[moved::move_x + i] = 0.5f * std::tanh(u[1 + i]);
        raw[i] = old[i] + moved[moved::move_x + i];
    }
    raw[2] += old[flow::heading] * p.drift;
    if (state != nullptr) {
        const auto element = 2 * static_cast<std::uint64_t>(row);
        const auto block =
            base::random_block(state->seed, state->step, state->micro, p.op_number, static_cast<std::uint32_t>(element >> 2));
        const base::NormalPair normal = base::normal_pair(block.v[element & 2], block.v[(element & 2) + 1]);
        raw[0] += p.noise * (2.0f / static_cast<float>(p.width - 1)) * normal.first;
        raw[1] += p.noise * (2.0f / static_cast<float>(p.height - 1)) * normal.second;
    }
    std::int32_t bits = kAlive;
    for (int i = 0; i < 2; ++i) {
        bool mirrored = false;
        next[i] = fold(raw[i], mirrored);
        if (mirrored) bits |= i == 0 ? kMirroredX : kMirroredY;
    }
    next[flow::z] = std::clamp(raw[2], -1.0f, 1.0f);
    if (std::fabs(raw[2]) > 1) bits |= kCutZ;
    for (int i = 0; i < 3; ++i) squares += (next[i] - old[i]) * (next[i] - old[i]);
    next[flow::energy] += moved[moved::gain];
    next[flow::active] = std::fabs(raw[2]) < 1 ? 1.0f : 0.0f;
    const float stride = std::sqrt(squares);
    if (p.max_spawn > 0 && next[flow::active] != 0 && stride > p.spawn_length)
        moved[moved::wanted] = std::min(static_cast<float>(p.max_spawn), std::floor(stride / p.spawn_length));
    moved[moved::bits] = static_cast<float>(bits);
}

void move_row_backward(const float* d, const float* moved, float* du, float* back, bool add) {
    const auto bits = static_cast<std::int32_t>(moved[moved::bits]);
    const bool live = (bits & kAlive) != 0;
    float before[4] = {d[0], d[1], d[2], d[flow::energy]};
    if (live) {
        if ((bits & kMirroredX) != 0) before[0] = -d[0];
        if ((bits & kMirroredY) != 0) before[1] = -d[1];
        if ((bits & kCutZ) != 0) before[2] = 0;
    }
    if (!add) std::fill_n(back, kFlowColumns, 0.0f);
    for (int i = 0; i < 4; ++i) back[i] += before[i];
    const auto through = [live](float gradient, float value) { return live ? gradient * (0.5f - 2 * value * value) : 0.0f; };
    du[0] = through(before[3], moved[moved::gain]);
    for (int i = 0; i < 3; ++i) du[1 + i] = through(before[i], moved[moved::move_x + i]);
}

/// Children in row order; a few additions per row, so one thread does it.
void spawn(const Bound& b, int member) {
    namespace at = flow_spawn;
    const Operand& table = b[at::flow];
    std::int32_t* counts = b[at::counters].at<std::int32_t>(member);
    const int used = counts[flow_counter::used];
    int begin = used;
    for (int row = 0; row < used; ++row) {
        float *left = b[at::moved].at<float>(member, 0, row), *parent = table.at<float>(member, 0, row);
        const auto wanted = static_cast<int>(left[moved::wanted]);
        if (wanted == 0) continue;
        const int admitted = std::min(wanted, std::max(0, table.rows - begin));
        left[moved::admitted] = static_cast<float>(admitted);
        left[moved::first_child] = static_cast<float>(begin);
        parent[flow::energy] /= static_cast<float>(1 + admitted);
        for (int k = 0; k < admitted; ++k) {
            float* child = table.at<float>(member, 0, begin + k);
            std::copy_n(b[at::before].at<float>(member, 0, row), 3, child);
            child[flow::energy] = parent[flow::energy];
            child[flow::heading] = parent[flow::heading];
            child[flow::active] = 1;
            child[flow::owner] = parent[flow::owner];
            child[flow::parent] = static_cast<float>(row);
        }
        counts[flow_counter::spawned] += admitted;
        counts[flow_counter::refused] += wanted - admitted;
        begin += wanted;
    }
    counts[flow_counter::used] = std::min(begin, table.rows);
}

void spawn_row_backward(const Bound& b, int member, int row) {
    namespace at = flow_spawn_backward;
    const float* left = b[at::moved].at<float>(member, 0, row);
    const auto admitted = static_cast<int>(left[moved::admitted]), first = static_cast<int>(left[moved::first_child]);
    float *d = b[at::dafter].at<float>(member, 0, row), *back = b[at::dbefore].at<float>(member, 0, row);
    if (!b.accumulates(at::dbefore)) std::fill_n(back, kFlowColumns, 0.0f);
    if (admitted == 0) return;
    for (int k = 0; k < admitted; ++k) {
        float* child = b[at::dafter].at<float>(member, 0, first + k);
        d[flow::energy] += child[flow::energy];
        for (int i = 0; i < 3; ++i) back[i] += child[i];
        std::fill_n(child, kFlowColumns, 0.0f);
    }
    d[flow::energy] /= static_cast<float>(1 + admitted);
}

void count(const Bound& b, const FlowCountParams& p, int member) {
    namespace at = flow_count;
    std::int32_t* counts = b[at::next].at<std::int32_t>(member);
    std::copy_n(b[at::counters].at<std::int32_t>(member), kFlowCounters, counts);
    if (counts[flow_counter::stopped] != 0) return;
    int up = 0, down = 0;
    for (int row = 0; row < b[at::flow].rows; ++row) {
        const auto bits = static_cast<std::int32_t>(b[at::moved].at<float>(member, 0, row)[moved::bits]);
        counts[flow_counter::reflected] += ((bits & kMirroredX) != 0 ? 1 : 0) + ((bits & kMirroredY) != 0 ? 1 : 0);
        counts[flow_counter::flow_steps] += (bits & kAlive) != 0 ? 1 : 0;
        const float* at = b[at::flow].at<float>(member, 0, row);
        if (row >= counts[flow_counter::used] || at[flow::active] != 0) continue;
        ++(at[flow::z] < 0 ? down : up);
    }
    end_step(p, up, down, counts);
}

}  // namespace

KernelResult make_flow_move(Context& context, const Bound& bound) {
    namespace at = flow_move;
    const auto p = bound.params<FlowMoveParams>();
    const int k = bound[at::before].k, n = bound[at::before].rows;
    Checker check(bound);
    require_table(require_table(check, at::before, k, n), at::after, k, n).require(at::u, DType::f32, k, 1, n, 4);
    require_counters(require_moved(check, at::moved, k, n), at::counters, k);
    check.that(p.width >= 2 && p.height >= 2, "width and height must be at least 2");
    check.that(p.max_spawn == 0 || p.spawn_length > 0, "spawn_length must be above 0");
    if (p.noise > 0) check.state(at::state, k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, p, k, n]() noexcept {
        for_each_piece(context, k, n, 100, [&](int m, int begin, int end) {
            const MemberState* of = p.noise > 0 ? &state_of(b[at::state], m) : nullptr;
            const bool stopped = has_stopped(b[at::counters], m);
            for (int row = begin; row < end; ++row) {
                const float* old = b[at::before].at<float>(m, 0, row);
                float *next = b[at::after].at<float>(m, 0, row), *left = b[at::moved].at<float>(m, 0, row);
                std::copy_n(old, kFlowColumns, next);
                std::fill_n(left, kMovedColumns, 0.0f);
                next[flow::parent] = -1;
                if (!stopped && old[flow::active] != 0) move_row(p, of, row, old, b[at::u].at<float>(m, 0, row), left, next);
            }
        });
    });
}

KernelResult make_flow_move_backward(Context& context, const Bound& bound) {
    namespace at = flow_move_backward;
    const int k = bound[at::dafter].k, n = bound[at::dafter].rows;
    Checker check(bound);
    require_table(require_table(check, at::dafter, k, n), at::dbefore, k, n);
    require_moved(check, at::moved, k, n).require(at::du, DType::f32, k, 1, n, 4);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, k, n, add = bound.accumulates(at::dbefore)]() noexcept {
        for_each_piece(context, k, n, 20, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row)
                move_row_backward(b[at::dafter].at<float>(m, 0, row), b[at::moved].at<float>(m, 0, row),
                                  b[at::du].at<float>(m, 0, row), b[at::dbefore].at<float>(m, 0, row), add);
        });
    });
}

KernelResult make_flow_spawn(Context&, const Bound& bound) {
    namespace at = flow_spawn;
    const int k = bound[at::flow].k, n = bound[at::flow].rows;
    Checker check(bound);
    require_table(require_table(check, at::before, k, n), at::flow, k, n);
    require_counters(require_moved(check, at::moved, k, n), at::counters, k);
    MILLRACE_TRY(check.status());
    return make_kernel([b = bound, k]() noexcept {
        for (int m = 0; m < k; ++m) spawn(b, m);
    });
}

KernelResult make_flow_spawn_state(Context& context, const Bound& bound) {
    namespace at = flow_spawn_state;
    const Operand state = bound[at::h];
    Checker check(bound);
    require_table(check, at::flow, state.k, state.rows).require(at::h, DType::f32, state.k, 1, state.rows, state.cols);
    MILLRACE_TRY(check.status());
    // A parent is never born in the same step, so no row is read and written.
    return make_kernel([&context, table = bound[at::flow], state]() noexcept {
        for_each_piece(context, state.k, state.rows, state.cols, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) {
                const float parent = table.at<float>(m, 0, row)[flow::parent];
                if (parent >= 0)
                    std::copy_n(state.at<float>(m, 0, static_cast<int>(parent)), state.cols, state.at<float>(m, 0, row));
            }
        });
    });
}

KernelResult make_flow_spawn_backward(Context& context, const Bound& bound) {
    namespace at = flow_spawn_backward;
    const int k = bound[at::dafter].k, n = bound[at::dafter].rows;
    Checker check(bound);
    require_table(require_table(check, at::dafter, k, n), at::dbefore, k, n);
    require_moved(check, at::moved, k, n);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, k, n]() noexcept {
        for_each_piece(context, k, n, 10, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) spawn_row_backward(b, m, row);
        });
    });
}

KernelResult make_flow_spawn_state_backward(Context& context, const Bound& bound) {
    namespace at = flow_spawn_state_backward;
    const Operand gradient = bound[at::dh];
    Checker check(bound);
    require_moved(check, at::moved, gradient.k, gradient.rows)
        .require(at::dh, DType::f32, gradient.k, 1, gradient.rows, gradient.cols);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, left = bound[at::moved], gradient]() noexcept {
        for_each_piece(context, gradient.k, gradient.rows, gradient.cols, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) {
                const float* at = left.at<float>(m, 0, row);
                const auto admitted = static_cast<int>(at[moved::admitted]), first = static_cast<int>(at[moved::first_child]);
                float* parent = gradient.at<float>(m, 0, row);
                for (int k = 0; k < admitted; ++k) {
                    float* child = gradient.at<float>(m, 0, first + k);
                    for (int c = 0; c < gradient.cols; ++c) parent[c] += child[c];
                    std::fill_n(child, gradient.cols, 0.0f);
                }
            }
        });
    });
}

KernelResult make_flow_count(Context&, const Bound& bound) {
    namespace at = flow_count;
    const int k = bound[at::flow].k, n = bound[at::flow].rows;
    Checker check(bound);
    require_counters(require_moved(require_table(check, at::flow, k, n), at::moved, k, n), at::counters, k);
    require_counters(check, at::next, k);
    MILLRACE_TRY(check.status());
    return make_kernel([b = bound, k]() noexcept {
        for (int m = 0; m < k; ++m) count(b, b.params<FlowCountParams>(), m);
    });
}

KernelResult make_flow_rest(Context& context, const Bound& bound) {
    namespace at = flow_rest;
    const int k = bound[at::before].k, n = bound[at::before].rows;
    Checker check(bound);
    require_table(require_table(check, at::before, k, n), at::after, k, n);
    require_counters(require_counters(check, at::counters, k), at::next, k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, k, n]() noexcept {
        for_each_piece(context, k, n, 2 * kFlowColumns, [&](int m, int begin, int end) {
            const std::int32_t* counters = b[at::counters].at<std::int32_t>(m);
            if (any_alive(counters)) return;
            for (int row = begin; row < end; ++row) {
                std::copy_n(b[at::before].at<float>(m, 0, row), kFlowColumns, b[at::after].at<float>(m, 0, row));
                b[at::after].at<float>(m, 0, row)[flow::parent] = -1;
            }
        });
        for (int m = 0; m < k; ++m)
            if (const std::int32_t* counters = b[at::counters].at<std::int32_t>(m); !any_alive(counters))
                rest(b.params<FlowCountParams>(), counters, b[at::next].at<std::int32_t>(m));
    });
}

KernelResult make_flow_rest_backward(Context& context, const Bound& bound) {
    namespace at = flow_rest_backward;
    const int k = bound[at::dafter].k, n = bound[at::dafter].rows;
    Checker check(bound);
    require_counters(require_table(require_table(check, at::dafter, k, n), at::dbefore, k, n), at::counters, k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, k, n]() noexcept {
        for_each_piece(context, k, n, 2 * kFlowColumns, [&](int m, int begin, int end) {
            if (any_alive(b[at::counters].at<std::int32_t>(m))) return;
            for (int row = begin; row < end; ++row)
                std::copy_n(b[at::dafter].at<float>(m, 0, row), kFlowColumns, b[at::dbefore].at<float>(m, 0, row));
        });
    });
}

KernelResult make_flow_clear(Context& context, const Bound& bound) {
    namespace at = flow_clear;
    Checker check(bound);
    for (int slot = at::out0; slot < at::slots && bound[slot].present(); ++slot)
        check.require(slot, DType::f32, bound[at::out0].k, 1, bound[slot].rows, bound[slot].cols);
    require_counters(require_counters(check, at::counters, bound[at::out0].k), at::earlier, bound[at::out0].k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound]() noexcept {
        for (int slot = at::out0; slot < at::slots && b[slot].present(); ++slot) {
            const Operand& to = b[slot];
            for_each_piece(context, to.k, to.rows, to.cols, [&](int m, int begin, int end) {
                if (any_alive(b[at::counters].at<std::int32_t>(m)) || !any_alive(b[at::earlier].at<std::int32_t>(m))) return;
                for (int row = begin; row < end; ++row) std::fill_n(to.at<float>(m, 0, row), to.cols, 0.0f);
            });
        }
    });
}

}  // namespace millrace::ops::cpu
