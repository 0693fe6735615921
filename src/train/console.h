#pragma once
// A run as a person follows it: one live line on a terminal, plain lines elsewhere, a summary per epoch and one at the end.

#include <atomic>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "train/listener.h"

namespace millrace::train {

/// Four digits behind the point, or four in all once a loss has left the range where those mean something; "-" when not finite.
std::string loss_text(double loss);
/// How much the lines show: the log level info stands for production and shows losses and times alone.
enum class Detail : std::uint8_t { losses, pace };
/// "epoch 2/5  step 2210/8440  loss 0.4312  41,230 samples/s (average 40,100)  1,288 steps/s  12s left  GPU: 85% | ..."
std::string progress_text(const IntervalReport& report, Detail detail = Detail::pace);
/// "epoch 2/5  train loss 0.4312 accuracy 84.10 %  validation loss 0.3890 accuracy 86.02 %  new best  12.0s  41,230 samples/s"
std::string epoch_text(const EpochReport& report, Detail detail = Detail::pace);
/// How the epoch went, for the lines below it: the machine, then step time, speed of the device, energy and waits. Empty strings
/// when nothing was measured.
std::string machine_text(const PaceReport& pace);
std::string pace_text(const PaceReport& pace);
/// "step 2: data 0.004 ms, forward 0.031, ... ; 0.105 ms with marks between them, which count in no speed"
std::string components_text(const tape::PhaseTimes& times, std::uint64_t step);
/// A table of the kernels of one step, the longest first.
std::string operators_text(const std::vector<tape::KernelTime>& times, std::uint64_t step);
std::string start_text(const StartReport& report);  ///< several lines
std::string finish_text(const RunResult& report);   ///< several lines

struct ConsoleOptions {
    std::FILE* out = stdout;  ///< where lines go; borrowed
    bool live = false;        ///< redraw one line on the terminal instead of writing new ones
    bool quiet = false;       ///< the closing summary alone
    std::chrono::nanoseconds plain_interval = std::chrono::seconds{10};  ///< least time between two progress lines when not live
    Detail detail = Detail::pace;
};

class Console final : public Listener {
public:
    explicit Console(ConsoleOptions options, const base::Clock& clock = base::SteadyClock::shared());

    void on_start(const StartReport& report) override {
        if (!options_.quiet) print(start_text(report));
    }
    void on_interval(IntervalReport& report) override;
    base::Status on_epoch(EpochReport& report) override {
        if (!options_.quiet) print(epoch_text(report, options_.detail));
        return base::ok();
    }
    void on_finish(const RunResult& result) override { print(finish_text(result)); }

private:
    void print(const std::string& lines);

    ConsoleOptions options_;
    const base::Clock& clock_;
    std::atomic<bool> reader_left_{false};  ///< of a pipe: nothing more is printed, and that is no failure
    base::LiveLines line_;
    std::chrono::nanoseconds last_line_{};
};

}  // namespace millrace::train
