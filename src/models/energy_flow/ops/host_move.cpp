// Moving flows.
#include <algorithm>

#include "models/energy_flow/ops/flow_rows.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

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

}  // namespace

MILLRACE_HOST_ROWS(flow_move, before, 100, move_row);
MILLRACE_HOST_ROWS(flow_move_backward, dafter, 20, move_backward_row);

}  // namespace millrace::ops
