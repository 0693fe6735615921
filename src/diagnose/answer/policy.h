#pragma once
// Every threshold of the doctor in one place, each with where it comes from. Shares are of the mean step.

#include <cstddef>
#include <cstdint>

#include "diagnose/answer/diagnosis.h"

namespace millrace::diagnose {

struct Band {
    double warn = 0, critical = 0;
};

/// What `compare` calls no difference is nothing to report; XProf's "highly" for launches and host time.
inline constexpr Band kAny{0.02, 0.15};

struct Policy {
    [[nodiscard]] constexpr Band band(Kind kind) const {
        switch (kind) {
            case Kind::kLoaderWait: return {0.05, 0.20};  // XProf's bands for input; PyTorch's TensorBoard plugin warns at 5 %
            case Kind::kAllocatorChurn: return {0.01, 0.05};  // in a steady step there is nothing to allocate: any recurrence
            case Kind::kPageableCopy: return {0.01, 0.15};    // 1 % of the step: the usual synthesis of copy rules
            case Kind::kStraggler: return {0.10, 0.20};       // TraceML: visible phase of victim and culprit
            case Kind::kMemoryEdge: return {0.92, 0.97};      // of device memory, TraceML's pressure levels
            case Kind::kSlowEvaluation: return {0.05, 0.20};  // of the time, as it leaves the GPU idle: XProf's for input
            case Kind::kThrottled: return {0.10, 0.50};       // of samples; power limits alone are how a full GPU looks
            default: return kAny;
        }
    }

    double evaluation_idle_ratio = 2;  ///< evaluation idles at least so many times as large a share as training does
    double matrix_share = 0.20;      ///< no-tensor-cores: matrix kernels take that much of the step (synthesis of DLProf's rules)
    double tensor_active = 0.01;     ///< and the tensor cores are active in less than that of the products' time (GPM)
    double tensor_core_speedup = 6;  ///< TF32 over FP32: 8 on A100, 7.4 on H100 by data sheet, four fifths of it reached
    double small_batch_sm_active = 0.40;  ///< small-batch: multiprocessors active in less than that of the time that kernels run
    double small_batch_headroom = 0.30;   ///< and that much of the memory is free
    double small_batch_idle = 0.15;       ///< and the GPU idles less than that: else another finding comes first
    double repeated_steps = 0.9;          ///< content or parameters are equal in that share of the steps
    std::size_t start_up_steps = 3;       ///< modules are loaded, caches filled, algorithms chosen
    std::size_t few_steps = 10;           ///< fewer lower confidence (a shortened window has ten)
    std::int64_t launch_gap =
        300'000;  ///< ns between calls up to which lines that launch are enqueuing: eager frameworks take 5 to 100 us per operator
    std::int64_t scan_gap = 1'000'000;  ///< ns; shorter gaps that no sample fell into count as enqueuing
    std::uint64_t staged_bytes =
        65536;                   ///< CUDA: larger pageable uploads are staged and block, smaller ones travel with the command
    std::size_t many_reads = 8;  ///< in one line and step: a loop over parameters or layers, whose values can be had together
    std::size_t kernels_per_read = 8;     ///< more between two reads do something else than preparing the value
    std::int64_t short_kernel = 10'000;   ///< ns; longer ones are bounded by their work: a weight of 4 MB takes 5 us on an H200
    std::int64_t kernel_latency = 3'000;  ///< ns of a kernel in which it does not work yet or any more: a norm of 1,024 numbers
                                          ///< takes 3.2 us on an H200, and 130 norms computed together 0.10 ms instead of 0.55
    std::uint64_t bulk_bytes = 1 << 20;   ///< a download of that size moves data, a smaller one reads a result
    double link_efficiency = 0.85;        ///< of a PCIe link's rate that pinned copies reach (53.7 of 63 GB/s: 268 MB on an H200)
    std::size_t queue_limit = 1024;       ///< launches that a device takes before the host must wait (CUDA)
    double loader_pace = 0.8;             ///< of the step that workers need for a batch: little is left for other cures
    double worker_busy = 0.5;             ///< loader workers that run or read most of the time a batch is late are why it is late
    double idle_power = 0.17;  ///< of the limit that a GPU takes with a program on it that does nothing (121 of 700 W on an H200)
    double power_exponent = 2.2;  ///< dynamic power goes with that power of the kernels' speed: 2.1 to 2.3 between two programs
                                  ///< with idle time and the same one without, two recordings of each, on an H200 at 700 W
    std::int64_t profiler_call = 4'000;  ///< ns that noting a call adds to it: CUPTI with callbacks, on and off, on an H200
    std::int64_t profiler_note = 3'400;  ///< ns that PyTorch's profiler adds per operator and function: 3.2 and 3.6 us beside
                                         ///< that of calls in two host-bound programs on an H200
    double noted_share = 0.8;            ///< of the host's time before a call that may be the profiler's
    double much_profiling = 0.10;        ///< of the step: findings about the host are less sure
    double replay_error = 0.05;          ///< the replay of what was recorded may be off by that before confidence falls
    double closes = 0.02;                ///< share of the step that a replayed cure must return to own anything
    double inside_writes = 0.25;         ///< of a line's samples seen inside of calls that write: what else runs there copies for
                                         ///< them. A disk of 7 GB/s behind a copy of 2.3 GB/s is waited for in that share
    double launches_under = 0.8;         ///< launch-bound: the innermost frame with that share of the launches
    double fastest_pace = 0.6;           ///< of a step outside of windows against inside: recording costs up to 40 %
    double slowest_pace = 1.1;           ///< the other way round
    std::size_t windows = 24;            ///< looked at, evenly spread
};
inline constexpr Policy kPolicy;

}  // namespace millrace::diagnose
