#pragma once
// Which rows of a flow table are alive, and the checks that all operators of the energy flow share.

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"
#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {

inline bool has_stopped(const tensor::Operand& counters, int member) {
    return counters.at<std::int32_t>(member)[flow_counter::stopped] != 0;
}

inline Checker& require_table(Checker& check, int slot, int k, int rows) {
    return check.require(slot, tensor::DType::f32, k, 1, rows, kFlowColumns);
}
inline Checker& require_moved(Checker& check, int slot, int k, int rows) {
    return check.require(slot, tensor::DType::f32, k, 1, rows, kMovedColumns);
}
inline Checker& require_counters(Checker& check, int slot, int k) {
    return check.require(slot, tensor::DType::i32, k, 1, 1, kFlowCounters);
}

}  // namespace millrace::ops::cpu
