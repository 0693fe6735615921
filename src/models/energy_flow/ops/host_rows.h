#pragma once
// How the host runs operators on the rows of a flow table. An operator that works row by row is one function template: the
// reference runs it in double and in order, the CPU in float on all threads.

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
