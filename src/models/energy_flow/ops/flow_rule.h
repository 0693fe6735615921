#pragma once
// What the counters of a flow table say: whether a flow is left, and when a member stops. Host and device.

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

}  // namespace millrace::ops
