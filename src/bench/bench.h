#pragma once
// Times the training step as a user runs it: resident data, gathered, forward, backward, update, metrics; nothing is read back.
// Beside it what the device reaches on a product that has nothing around it, and how busy it was by the chip's own counters
// (GPM).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "models/model.h"
#include "ops/backend.h"
#include "sense/machine.h"
#include "tape/buffer.h"
#include "tape/instrument.h"

namespace millrace::bench {

struct Workload {
    std::string name;  ///< "collective-debug-b32-k16"
    std::string model, preset;
    std::int32_t batch = 32;  ///< 0: as the family has it
    int members = 1;
    bool f32 = false;                        ///< a row of its own for full precision where the device prefers another
    std::vector<std::string> settings = {};  ///< further keys of the recipe: "model.steps=10"
    std::string peer_preset = {};            ///< what the peers call the preset; empty: the same
    std::string peer = {};                   ///< script of the peers, without .py; empty: there are none
    std::string peer_modes = {};             ///< "eager,graph"; empty: all that the peers know
    double bar = 0;                          ///< ratio to the fastest peer that has to be reached; 0: none
    bool on_request = false;                 ///< only when named
};

/// All workloads of a device; f32 rows exist on cuda alone, where bf16 is the normal case.
std::vector<Workload> all_workloads(ops::DeviceKind device);

/// Those named, in the order of the list; when `names` is empty all but those on request. An unknown name is an error with the
/// nearest.
base::Result<std::vector<Workload>> select_workloads(std::vector<Workload> all, const std::vector<std::string>& names);

struct Options {
    ops::DeviceKind device = ops::DeviceKind::cpu;
    int threads = 0;                         ///< 0: one per core
    double seconds = 1;                      ///< least time measured
    std::string precision = "auto";          ///< of rows that do not say f32 themselves: auto, f32, bf16 or f16
    std::vector<std::string> settings = {};  ///< keys of the recipe over those of the workload
    std::string peer_modes = {};             ///< in the place of the workload's; empty: those
    std::vector<std::string> rewrites_off;   ///< ops::BackendOptions::rewrites_off
    bool activity = true;                    ///< also the chip's counters during the windows
    std::vector<std::string> forms;          ///< ops::BackendOptions::forms
    bool parts = false;                      ///< also the times of a step's parts
    bool kernels = false;                    ///< also the time of every kernel alone
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
    std::string device;
    std::string precision;                 ///< "f32", "tf32", "bf16" or "f16"
    bool replayed = false;                 ///< the step is one launch
    std::int32_t batch = 0;                ///< samples of a step, all members
    std::int64_t parameters = 0;           ///< trainable ones of a member
    double flops = 0;                      ///< of the matrix products of a step, all rows
    std::optional<models::StepWork> work;  ///< of models whose work depends on the data
    std::optional<double> idle;  ///< share of a step in which the device waits for the next launch; replayed steps alone
    std::optional<double> sm_active, tensor_active;  ///< % by GPM during the windows
    std::int64_t memory = 0, planned = 0;            ///< bytes that setting up took, and was planned to take
    std::optional<std::int64_t> memory_growth;       ///< of the device's used memory during the windows
    std::optional<tape::PhaseTimes> parts;
    std::vector<tape::KernelTime> kernels;

    /// The same row measured again, later in the run.
    void add(const OurTimes& later);
};

/// At least seven windows, which fill `seconds` but last no longer than a tenth of a second each, after a warm-up; the host waits
/// for the device at window ends only. A key that cannot be followed is refused (row_recipe.h).
base::Result<OurTimes> time_workload(const Workload& workload, const Options& options);

/// % of the time, averaged over the chip; absent where the GPU or its driver counts nothing.
struct GpuActivity {
    std::optional<double> sm, tensor;
};

/// Of the first GPU that CUDA shows, since the reading before; absent on the first one and without a source or a GPU.
GpuActivity read_activity(sense::Source* source, const base::Clock& clock = base::SteadyClock::shared());

/// FLOP per second of one product of two [size, size] matrices of random numbers (zeros would let a chip clock higher), the
/// median of seven windows of at least `window_ms`. Products are the backend's own, with operands of `precision`.
base::Result<double> product_ceiling(ops::Backend& backend, tape::Precision precision, std::int32_t size, double window_ms = 50,
                                     const base::Clock& clock = base::SteadyClock::shared());

/// 8192 on a GPU; on a CPU 1536, beyond which nothing gets faster.
std::int32_t ceiling_size(ops::DeviceKind device);

}  // namespace millrace::bench
