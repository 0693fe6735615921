#pragma once
// How far the host runs ahead of the device.

#include <chrono>
#include <cstdint>
#include <thread>

#include "ops/backend.h"
#include "train/metrics_reader.h"

namespace millrace::train {

constexpr std::uint64_t kStepsInFlight = 64;  ///< enough to hide the host, few enough to stop soon

/// More than that many of the `launched` steps have not ended.
inline bool is_far_ahead(const MetricsReader& reader, std::uint64_t launched) {
    return launched > kStepsInFlight && !reader.arrived(launched - kStepsInFlight);
}

/// Reads host memory alone while it waits; an error where the device has failed.
template <class Condition>
base::Status wait_while(ops::Backend& backend, const Condition& condition) {
    while (condition()) {
        MILLRACE_TRY(backend.check());
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    return base::ok();
}

}  // namespace millrace::train
