#pragma once
// Warns of slow data, a badly used machine and dropped steps: each warning with its evidence and the setting to change.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "train/loop.h"
#include "train/telemetry.h"

namespace millrace::train {

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

std::vector<Warning> judge(const TrainingEvidence& evidence);

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
