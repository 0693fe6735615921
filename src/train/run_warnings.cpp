#include "train/run_warnings.h"

#include <fmt/format.h>

#include "base/log.h"

namespace millrace::train {

void RunWarnings::on_epoch_begin() {
    gate_.begin_epoch();
    spikes_noted_ = 0;
    looked_early_ = false;
    epoch_began_ = clock_.now();
}

void RunWarnings::on_wait(const StepWait& wait) {
    constexpr std::chrono::seconds kEarlyLook{60};  // into an epoch: its end may be hours away
    constexpr std::uint32_t kMostNotes = 100;       // per epoch; the rest are counted
    if (!looked_early_ && wait.now - epoch_began_ > kEarlyLook) {
        looked_early_ = true;
        PaceReport pace = loop_.metrics().epoch_pace(0);
        pace.machine = telemetry_.epoch();
        warn(pace, wait.epoch);
    }
    if (!wait.spike || spikes_noted_++ >= kMostNotes) return;
    const double milliseconds = std::chrono::duration<double, std::milli>(wait.wait).count();
    const std::string text =
        fmt::format("step {} waited {:.0f} ms for its data; {}", wait.step, milliseconds, telemetry_.newest_text());
    MILLRACE_LOG(performance, "{}", text);
    (void)telemetry_.events().append("loader_spike", text,
                                     {{"step", static_cast<std::int64_t>(wait.step)}, {"wait_ms", milliseconds}});
}

base::Status RunWarnings::on_epoch(EpochReport& report) {
    if (report.dropped > 0)
        MILLRACE_LOG(warn,
                     "epoch {}: {} of {} steps were dropped because a value was not finite; train.debug_nonfinite=true names the "
                     "operator that made it",
                     report.epoch, report.dropped, report.steps);
    warn(report.pace, report.epoch);
    return base::ok();
}

void RunWarnings::warn(const PaceReport& pace, std::uint32_t epoch) {
    TrainingEvidence evidence;
    evidence.machine = pace.machine;
    evidence.loader = pace.loader;
    evidence.step_ms = pace.step_ms_p50.value_or(0);
    evidence.on_gpu = loop_.engine().backend().kind() == ops::DeviceKind::cuda;
    evidence.members = loop_.engine().members();
    evidence.batch = loop_.setup().settings.batch;
    for (const Warning& warning : gate_.admit(judge(evidence))) {
        MILLRACE_LOG(warn, "epoch {}: {}", epoch, warning.text);
        (void)telemetry_.events().append("warning", warning.text, {{"cause", warning.cause}, {"epoch", std::int64_t{epoch}}});
    }
}

}  // namespace millrace::train
