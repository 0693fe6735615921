#pragma once
// Watches a run for what its owner should look at: slow data, a badly used machine, dropped steps.

#include "train/loop.h"
#include "train/telemetry.h"
#include "train/warnings.h"

namespace millrace::train {

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
