#include "models/energy_flow/ops/ref_flow.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "models/energy_flow/ops/flow.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

double on_line(int index, int count) { return -1 + 2.0 * index / (count - 1); }

/// Mirrors at -1 and 1 for any overshoot and tells whether the direction changed.
double fold(double v, bool& mirrored) {
    mirrored = false;
    if (std::fabs(v) <= 1) return v;
    double rest = std::fmod(v + 1, 4);
    if (rest < 0) rest += 4;
    mirrored = rest > 2;
    return 1 - std::fabs(rest - 2);
}

}  // namespace

void run_flow_begin(const Bound& bound) {
    namespace at = flow_begin;
    const auto& grid = bound.params<FlowGridParams>();
    const auto &e = bound[at::e], &table = bound[at::flow];
    const int cells = e.cols;
    for (int m = 0; m < table.k; ++m) {
        for (int row = 0; row < table.rows; ++row) {
            double* flow = table.at<double>(m, 0, row);
            std::fill_n(flow, kFlowColumns, 0.0);
            flow[flow::heading] = 1;
            flow[flow::parent] = -1;
            if (row >= e.rows * cells) continue;
            const int sample = row / cells, cell = row % cells;
            flow[flow::x] = on_line(cell % grid.width, grid.width);
            flow[flow::y] = on_line(cell / grid.width, grid.height);
            flow[flow::energy] = e.at<double>(m, 0, sample)[cell];
            flow[flow::heading] = flow[flow::energy] < 0 ? -1 : 1;
            flow[flow::active] = 1;
            flow[flow::owner] = sample;
        }
        std::int32_t* counters = counters_of(bound[at::counters], m);
        std::fill_n(counters, kFlowCounters, 0);
        counters[flow_counter::used] = e.rows * cells;
        find_alive(counters);
    }
}

void run_flow_begin_backward(const Bound& bound) {
    namespace at = flow_begin_backward;
    const auto &de = bound[at::de], &dflow = bound[at::dflow];
    for (int m = 0; m < de.k; ++m)
        for (int b = 0; b < de.rows; ++b)
            for (int cell = 0; cell < de.cols; ++cell)
                de.at<double>(m, 0, b)[cell] = dflow.at<double>(m, 0, b * de.cols + cell)[flow::energy];
}

void run_flow_move(const Bound& bound) {
    namespace at = flow_move;
    const auto& p = bound.params<FlowMoveParams>();
    const auto& before = bound[at::before];
    const double cell[2] = {2.0 / (p.width - 1), 2.0 / (p.height - 1)};
    for (int m = 0; m < before.k; ++m)
        for (int row = 0; row < before.rows; ++row) {
            const double *old = before.at<double>(m, 0, row), *u = bound[at::u].at<double>(m, 0, row);
            double *next = bound[at::after].at<double>(m, 0, row), *moved = bound[at::moved].at<double>(m, 0, row);
            std::copy_n(old, kFlowColumns, next);
            std::fill_n(moved, kMovedColumns, 0.0);
            next[flow::parent] = -1;
            if (!alive(before, bound[at::counters], m, row)) continue;
            moved[moved::gain] = 0.5 * std::tanh(u[0]);
            double raw[3], squares = 0;
            for (int i = 0; i < 3; ++i) {
                moved[moved::move_x + i] = 0.5 * std::tanh(u[1 + i]);
                raw[i] = old[i] + moved[moved::move_x + i];
            }
            raw[2] += old[flow::heading] * static_cast<double>(p.drift);
            const MemberState* state = p.noise > 0 ? &state_of(bound[at::state], m) : nullptr;
            std::int32_t bits = kAlive;
            for (int i = 0; i < 2; ++i) {
                if (state != nullptr)
                    raw[i] += static_cast<double>(p.noise) * cell[i] *
                              static_cast<double>(
                                  base::random_normal(state->seed, state->step, state->micro, p.op_number,
                                                      2 * static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(i)));
                bool mirrored = false;
                next[i] = fold(raw[i], mirrored);
                if (mirrored) bits |= i == 0 ? kMirroredX : kMirroredY;
            }
            next[flow::z] = std::clamp(raw[2], -1.0, 1.0);
            if (std::fabs(raw[2]) > 1) bits |= kCutZ;
            for (int i = 0; i < 3; ++i) squares += (next[i] - old[i]) * (next[i] - old[i]);
            next[flow::energy] += moved[moved::gain];
            next[flow::active] = std::fabs(raw[2]) < 1 ? 1 : 0;
            const double stride = std::sqrt(squares), length = static_cast<double>(p.spawn_length);
            if (p.max_spawn > 0 && next[flow::active] != 0 && stride > length)
                moved[moved::wanted] = std::min<double>(p.max_spawn, std::floor(stride / length));
            moved[moved::bits] = bits;
        }
}

void run_flow_move_backward(const Bound& bound) {
    namespace at = flow_move_backward;
    const auto& dafter = bound[at::dafter];
    const bool add = bound.accumulates(at::dbefore);
    for (int m = 0; m < dafter.k; ++m)
        for (int row = 0; row < dafter.rows; ++row) {
            const double *d = dafter.at<double>(m, 0, row), *moved = bound[at::moved].at<double>(m, 0, row);
            double *du = bound[at::du].at<double>(m, 0, row), *back = bound[at::dbefore].at<double>(m, 0, row);
            const auto bits = static_cast<std::int32_t>(moved[moved::bits]);
            const bool live = (bits & kAlive) != 0;
            double draw[3] = {(bits & kMirroredX) != 0 ? -d[0] : d[0], (bits & kMirroredY) != 0 ? -d[1] : d[1],
                              (bits & kCutZ) != 0 ? 0 : d[2]};
            const double denergy = d[flow::energy];
            for (int i = 0; i < kFlowColumns && !add; ++i) back[i] = 0;
            for (int i = 0; i < 3; ++i) back[i] += live ? draw[i] : d[i];
            back[flow::energy] += denergy;
            const auto through = [&](double gradient, double value) { return live ? gradient * (0.5 - 2 * value * value) : 0; };
            du[0] = through(denergy, moved[moved::gain]);
            for (int i = 0; i < 3; ++i) du[1 + i] = through(draw[i], moved[moved::move_x + i]);
        }
}

void run_flow_spawn(const Bound& bound) {
    namespace at = flow_spawn;
    const auto &before = bound[at::before], &table = bound[at::flow];
    for (int m = 0; m < table.k; ++m) {
        std::int32_t* counters = counters_of(bound[at::counters], m);
        int begin = counters[flow_counter::used];
        const int limit = begin;  // rows that exist: children of this step spawn in the next
        for (int row = 0; row < limit; ++row) {
            double *moved = bound[at::moved].at<double>(m, 0, row), *parent = table.at<double>(m, 0, row);
            const auto wanted = static_cast<int>(moved[moved::wanted]);
            if (wanted == 0) continue;
            const int admitted = std::min(wanted, std::max(0, table.rows - begin));
            moved[moved::admitted] = admitted;
            moved[moved::first_child] = begin;
            parent[flow::energy] /= 1 + admitted;
            for (int k = 0; k < admitted; ++k) {
                double* child = table.at<double>(m, 0, begin + k);
                std::copy_n(before.at<double>(m, 0, row), 3, child);
                child[flow::energy] = parent[flow::energy];
                child[flow::heading] = parent[flow::heading];
                child[flow::active] = 1;
                child[flow::owner] = parent[flow::owner];
                child[flow::parent] = row;
            }
            counters[flow_counter::spawned] += admitted;
            counters[flow_counter::refused] += wanted - admitted;
            begin += wanted;
        }
        counters[flow_counter::used] = std::min(begin, table.rows);
    }
}

void run_flow_spawn_state(const Bound& bound) {
    namespace at = flow_spawn_state;
    const auto& h = bound[at::h];
    for (int m = 0; m < h.k; ++m)
        for (int row = 0; row < h.rows; ++row) {
            const double parent = bound[at::flow].at<double>(m, 0, row)[flow::parent];
            if (parent >= 0) std::copy_n(h.at<double>(m, 0, static_cast<int>(parent)), h.cols, h.at<double>(m, 0, row));
        }
}

void run_flow_spawn_backward(const Bound& bound) {
    namespace at = flow_spawn_backward;
    const auto& dafter = bound[at::dafter];
    const bool add = bound.accumulates(at::dbefore);
    for (int m = 0; m < dafter.k; ++m)
        for (int row = 0; row < dafter.rows; ++row) {
            const double* moved = bound[at::moved].at<double>(m, 0, row);
            const auto admitted = static_cast<int>(moved[moved::admitted]), first = static_cast<int>(moved[moved::first_child]);
            double *d = dafter.at<double>(m, 0, row), *back = bound[at::dbefore].at<double>(m, 0, row);
            for (int i = 0; i < kFlowColumns && !add; ++i) back[i] = 0;
            if (admitted == 0) continue;
            for (int k = 0; k < admitted; ++k) {
                double* child = dafter.at<double>(m, 0, first + k);
                d[flow::energy] += child[flow::energy];
                for (int i = 0; i < 3; ++i) back[i] += child[i];
                std::fill_n(child, kFlowColumns, 0.0);
            }
            d[flow::energy] /= 1 + admitted;
        }
}

void run_flow_spawn_state_backward(const Bound& bound) {
    namespace at = flow_spawn_state_backward;
    const auto& dh = bound[at::dh];
    for (int m = 0; m < dh.k; ++m)
        for (int row = 0; row < dh.rows; ++row) {
            const double* moved = bound[at::moved].at<double>(m, 0, row);
            const auto admitted = static_cast<int>(moved[moved::admitted]), first = static_cast<int>(moved[moved::first_child]);
            for (int k = 0; k < admitted; ++k) {
                double *parent = dh.at<double>(m, 0, row), *child = dh.at<double>(m, 0, first + k);
                for (int c = 0; c < dh.cols; ++c) parent[c] += child[c];
                std::fill_n(child, dh.cols, 0.0);
            }
        }
}

void run_flow_count(const Bound& bound) {
    namespace at = flow_count;
    const auto& p = bound.params<FlowCountParams>();
    const auto& table = bound[at::flow];
    for (int m = 0; m < table.k; ++m) {
        std::int32_t* counters = counters_of(bound[at::next], m);
        std::copy_n(counters_of(bound[at::counters], m), kFlowCounters, counters);
        if (counters[flow_counter::stopped] != 0) continue;
        int up = 0, down = 0;
        for (int row = 0; row < table.rows; ++row) {
            const auto bits = static_cast<std::int32_t>(bound[at::moved].at<double>(m, 0, row)[moved::bits]);
            counters[flow_counter::reflected] += ((bits & kMirroredX) != 0 ? 1 : 0) + ((bits & kMirroredY) != 0 ? 1 : 0);
            counters[flow_counter::flow_steps] += (bits & kAlive) != 0 ? 1 : 0;
            const double* flow = table.at<double>(m, 0, row);
            if (row >= counters[flow_counter::used] || flow[flow::active] != 0) continue;
            ++(flow[flow::z] < 0 ? down : up);
        }
        end_step(p, up, down, counters);
    }
}

void run_flow_rest(const Bound& bound) {
    namespace at = flow_rest;
    const auto &before = bound[at::before], &after = bound[at::after];
    for (int m = 0; m < before.k; ++m) {
        if (any_alive(counters_of(bound[at::counters], m))) continue;
        for (int row = 0; row < before.rows; ++row) {
            std::copy_n(before.at<double>(m, 0, row), kFlowColumns, after.at<double>(m, 0, row));
            after.at<double>(m, 0, row)[flow::parent] = -1;
        }
        rest(bound.params<FlowCountParams>(), counters_of(bound[at::counters], m), counters_of(bound[at::next], m));
    }
}

void run_flow_rest_backward(const Bound& bound) {
    namespace at = flow_rest_backward;
    for (int m = 0; m < bound[at::dafter].k; ++m)
        for (int row = 0; row < bound[at::dafter].rows && !any_alive(counters_of(bound[at::counters], m)); ++row)
            std::copy_n(bound[at::dafter].at<double>(m, 0, row), kFlowColumns, bound[at::dbefore].at<double>(m, 0, row));
}

void run_flow_clear(const Bound& bound) {
    namespace at = flow_clear;
    for (int slot = at::out0; slot < at::slots && bound[slot].present(); ++slot) {
        const auto& out = bound[slot];
        for (int m = 0; m < out.k; ++m) {
            if (any_alive(counters_of(bound[at::counters], m)) || !any_alive(counters_of(bound[at::earlier], m))) continue;
            for (int row = 0; row < out.rows; ++row) std::fill_n(out.at<double>(m, 0, row), out.cols, 0.0);
        }
    }
}

}  // namespace millrace::ops::ref
