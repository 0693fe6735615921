#pragma once
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_rule.h"

namespace millrace::ops::ref {

inline std::int32_t* counters_of(const tensor::Operand& counters, int member) { return counters.at<std::int32_t>(member); }

/// Active at the beginning of the step, and the member has not stopped.
inline bool alive(const tensor::Operand& flow, const tensor::Operand& counters, int member, int row) {
    return flow.at<double>(member, 0, row)[flow::active] != 0 && counters_of(counters, member)[flow_counter::stopped] == 0;
}

}  // namespace millrace::ops::ref
