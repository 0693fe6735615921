#pragma once
// Warns of slow data, a badly used machine and dropped steps: each warning with its evidence and the setting to change.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "train/loop.h"
#include "train/telemetry.h"

namespace millrace::train {

/// Where a warning begins. The reports asked for 30 % of utilization, 50 ms of mean wait, and 5 and 10 % of spikes; the rest is
/// ours.
struct WarningPolicy {
    double low_utilization_percent = 30;
    double loader_share_percent = 5;   ///< of a step's time
    double loader_mean_ms = 50;        ///< whatever the step takes
    double spike_percent = 5;          ///< of the steps: kLoaderSpike and longer
    double many_spikes_percent = 10;   ///< of the steps: the source is too slow, not disturbed
    double memory_edge_percent = 95;   ///< of what there is: the next larger batch will not fit, and the system starts to reclaim
    double throttled_percent = 10;     ///< of the samples: clocks may settle for a moment
    std::uint64_t fewest_samples = 3;  ///< of the machine; one reading says little
    std::uint64_t fewest_waits = 20;   ///< steps whose wait was measured
};

struct TrainingEvidence {
    MachineReport machine;
    LoaderReport loader;
    double step_ms = 0;  ///< median; 0: not measured
    bool on_gpu = false;
    int members = 1;
    std::int32_t batch = 0;
};

struct Warning {
    std::string cause;  ///< "low_utilization", "loader_wait", "loader_spikes", "vram_edge", "ram_edge", "throttled"
    std::string text;
};

std::vector<Warning> judge(const TrainingEvidence& evidence, const WarningPolicy& policy = {});

/// Lets each cause through once until the next epoch begins.
class WarningGate {
public:
    void begin_epoch() { seen_.clear(); }
    std::vector<Warning> admit(std::vector<Warning> warnings);

private:
    std::set<std::string> seen_;
};

/// Warns in the log and in events.jsonl, per cause once in an epoch, at its end and once early in a long one.
class RunWarnings final : public Listener {
public:
    /// Everything is borrowed.
    RunWarnings(Loop& loop, Telemetry& telemetry, const base::Clock& clock) : loop_(loop), telemetry_(telemetry), clock_(clock) {}

    void on_epoch_begin() override;
    void on_wait(const StepWait& wait) override;
    base::Status on_epoch(EpochReport& report) override;

private:
    void warn(const PaceReport& pace, std::uint32_t epoch);

    Loop& loop_;
    Telemetry& telemetry_;
    const base::Clock& clock_;
    WarningGate gate_;
    std::uint32_t spikes_noted_ = 0;  ///< of this epoch
    bool looked_early_ = false;       ///< in this epoch
    std::chrono::nanoseconds epoch_began_{};
};

}  // namespace millrace::train
