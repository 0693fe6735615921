#pragma once
// Times the training step as a user runs it: resident data, gathered, forward, backward, update, metrics; nothing is read back.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"

namespace millrace::train {

struct BenchWorkload {
    std::string name;  ///< "collective-debug-b32-k16"
    std::string model, preset;
    std::int32_t batch = 32;
    int members = 1;
    bool f32 = false;  ///< a row of its own for full precision where the device prefers another
};

/// All workloads of a device; f32 rows exist on cuda alone, where bf16 is the normal case.
std::vector<BenchWorkload> bench_workloads(ops::DeviceKind device);

/// Those named, in the order of the list; all when `names` is empty. An unknown name is an error with the nearest.
base::Result<std::vector<BenchWorkload>> select_workloads(std::vector<BenchWorkload> all, const std::vector<std::string>& names);

struct BenchOptions {
    ops::DeviceKind device = ops::DeviceKind::cpu;
    int threads = 0;     ///< 0: one per core
    double seconds = 1;  ///< least time measured
};

/// Median and quartiles in milliseconds per step.
struct Timing {
    double median = 0, low = 0, high = 0;
    std::size_t windows = 0;
};
/// Nearest-rank quartiles of `times`, which must not be empty.
Timing timing_of(std::vector<double> times);

struct OurTimes {
    std::vector<double> windows;  ///< mean milliseconds per step of each window
    std::string device, precision;
    bool replayed = false;  ///< the step is one launch
};

/// At least seven windows of about a tenth of a second after a warm-up; the host waits for the device at window ends only.
base::Result<OurTimes> time_workload(const BenchWorkload& workload, const BenchOptions& options);

}  // namespace millrace::train
