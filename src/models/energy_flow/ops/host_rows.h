#pragma once
// How the host runs operators on the rows of a flow table, and the checks that they share. An operator that works row by row is
// one function template: the reference runs it in double and in order, the CPU in float on all threads.

#include <initializer_list>

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/cpu/kernel.h"

namespace millrace::ops {

using FlowRow = void (*)(const Bound&, int member, int row);

inline bool has_stopped(const tensor::Operand& counters, int member) {
    return counters.at<std::int32_t>(member)[flow_counter::stopped] != 0;
}

}  // namespace millrace::ops

namespace millrace::ops::ref {

inline void in_order(const Bound& b, int slot, FlowRow row_of) {
    for (int m = 0; m < b[slot].k; ++m)
        for (int row = 0; row < b[slot].rows; ++row) row_of(b, m, row);
}

}  // namespace millrace::ops::ref

namespace millrace::ops::cpu {

/// Checks slots against the members k and rows n of one of them.
class FlowChecker : public Checker {
public:
    FlowChecker(const Bound& bound, int slot) : Checker(bound), k(bound[slot].k), n(bound[slot].rows) {}

    FlowChecker& tables(std::initializer_list<int> slots) { return rows(slots, kFlowColumns); }
    FlowChecker& moved(int slot) { return rows({slot}, kMovedColumns); }
    FlowChecker& rows(std::initializer_list<int> slots, int cols) {
        for (const int slot : slots) require(slot, tensor::DType::f32, k, 1, n, cols);
        return *this;
    }
    FlowChecker& counters(std::initializer_list<int> slots) {
        for (const int slot : slots) require(slot, tensor::DType::i32, k, 1, 1, kFlowCounters);
        return *this;
    }
    FlowChecker& grid(const FlowGridParams& grid, int surface, const tensor::Operand& cells) {
        require(surface, tensor::DType::f32, k, 1, cells.rows, cells.cols);
        that(grid.width >= 2 && grid.height >= 2 && grid.width * grid.height == cells.cols,
             "the surface must have width * height columns, both at least 2");
        return *this;
    }

    const int k, n;
};

/// `row_of` for all rows of a slot by all threads, `work` elements each; then `last` on the calling thread.
inline KernelResult by_rows(Context& context, const Bound& bound, int slot, int work, FlowRow row_of,
                            void (*last)(const Bound&) = nullptr) {
    return make_kernel([&context, b = bound, slot, work, row_of, last]() noexcept {
        for_each_piece(context, b[slot].k, b[slot].rows, work, [&](int m, int begin, int end) {
            for (int row = begin; row < end; ++row) row_of(b, m, row);
        });
        if (last != nullptr) last(b);
    });
}

}  // namespace millrace::ops::cpu
