#include "train/warnings.h"

#include <fmt/format.h>

#include "base/log.h"

namespace millrace::train {
namespace {

// Where a warning begins. The reports asked for 30 % of utilization, 50 ms of mean wait, and 5 and 10 % of spikes; the rest is
// ours.
constexpr double kLowUtilizationPercent = 30;
constexpr double kLoaderSharePercent = 5;  ///< of a step's time
constexpr double kLoaderMeanMs = 50;       ///< whatever the step takes
constexpr double kSpikePercent = 5;        ///< of the steps: kLoaderSpike and longer
constexpr double kManySpikesPercent = 10;  ///< of the steps: the source is too slow, not disturbed
constexpr double kMemoryEdgePercent =
    95;  ///< of what there is: the next larger batch will not fit, and the system starts to reclaim
constexpr double kThrottledPercent = 10;    ///< of the samples: clocks may settle for a moment
constexpr std::uint64_t kFewestWaits = 20;  ///< steps whose wait was measured

constexpr const char* kFasterSource = "use a data set that fits the device's memory, a faster disk or a smaller train.batch";

std::string bytes_text(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1u << 30)); }

std::optional<Warning> low_utilization(const TrainingEvidence& e) {
    if (!e.on_gpu || e.machine.samples < kFewestSamples) return std::nullopt;
    const std::optional<double> utilization = e.machine.resident_percent;
    if (!utilization || *utilization >= kLowUtilizationPercent) return std::nullopt;
    std::string text = fmt::format("the GPU had a kernel for {:.0f} % of the time ({} samples", *utilization, e.machine.samples);
    if (e.machine.sm_active_percent) text += fmt::format(", {:.0f} % of the chip was busy", *e.machine.sm_active_percent);
    text += ")";
    if (e.step_ms > 0 && e.loader.wait_ms.mean > kLoaderSharePercent / 100 * e.step_ms)
        text += fmt::format("; steps waited {:.2f} ms of {:.2f} for their data: speed up the source of the data first",
                            e.loader.wait_ms.mean, e.step_ms);
    else
        text += fmt::format(
            "; steps did not wait for data. One step is {} of {} rows{}: a larger members trains several models "
            "in the same time, a larger train.batch gives each step more work but changes the training",
            e.members == 1 ? "a batch" : fmt::format("{} batches", e.members), e.batch,
            e.step_ms > 0 ? fmt::format(" and takes {:.3f} ms", e.step_ms) : "");
    return Warning{"low_utilization", std::move(text)};
}

std::optional<Warning> loader_wait(const TrainingEvidence& e) {
    const record::Statistics& wait = e.loader.wait_ms;
    if (wait.count < kFewestWaits) return std::nullopt;
    const double share = e.step_ms > 0 ? 100 * wait.mean / e.step_ms : 0;
    if (share <= kLoaderSharePercent && wait.mean <= kLoaderMeanMs) return std::nullopt;
    return Warning{
        "loader_wait",
        fmt::format("steps waited {:.2f} ms on average for their data (median {:.2f}, worst {:.1f}; {} above {} ms){}: {}",
                    wait.mean, wait.median, wait.maximum, e.loader.spikes, kLoaderSpike.count(),
                    e.step_ms > 0 ? fmt::format(", {:.0f} % of a step of {:.2f} ms", share, e.step_ms) : "", kFasterSource)};
}

/// The mean may hide them: most steps find their data ready.
std::optional<Warning> loader_spikes(const TrainingEvidence& e) {
    const std::uint64_t waits = e.loader.wait_ms.count, spikes = e.loader.spikes;
    if (waits < kFewestWaits) return std::nullopt;
    const double percent = 100 * static_cast<double>(spikes) / static_cast<double>(waits);
    if (percent <= kSpikePercent) return std::nullopt;
    std::string worst;
    for (std::size_t i = 0; i < e.loader.worst_ms.size() && i < spikes; ++i)
        worst += fmt::format("{}{:.0f}", i > 0 ? ", " : "", e.loader.worst_ms[i]);
    return Warning{
        "loader_spikes",
        fmt::format("{} of {} steps ({:.0f} %) waited more than {} ms for their data, one every {:.1f} steps, the worst {} ms; "
                    "events.jsonl has what the machine did at each: {}",
                    spikes, waits, percent, kLoaderSpike.count(), e.loader.spike_spacing, worst,
                    percent > kManySpikesPercent
                        ? kFasterSource
                        : "look there for other programs on the disk or the CPU, and for memory that runs short")};
}

std::optional<Warning> vram_edge(const TrainingEvidence& e) {
    if (e.machine.line.gpus.empty() || !e.machine.vram_peak_bytes) return std::nullopt;
    const std::optional<double> total = e.machine.line.gpus.front().memory_total_bytes;
    if (!total || *e.machine.vram_peak_bytes < kMemoryEdgePercent / 100 * *total) return std::nullopt;
    return Warning{
        "vram_edge",
        fmt::format("the GPU's memory was at {} of {} ({:.0f} %): lower train.batch, eval.batch or members, "
                    "or find who else is on the GPU with nvidia-smi",
                    bytes_text(*e.machine.vram_peak_bytes), bytes_text(*total), 100 * *e.machine.vram_peak_bytes / *total)};
}

std::optional<Warning> ram_edge(const TrainingEvidence& e) {
    const std::optional<double> peak = e.machine.ram_peak_bytes, total = e.machine.line.ram_total_bytes;
    if (!peak || !total || *peak < kMemoryEdgePercent / 100 * *total) return std::nullopt;
    return Warning{"ram_edge",
                   fmt::format("the machine's memory was at {} of {} ({:.0f} %): raise the limit of the container, end other "
                               "programs, or use a smaller data set",
                               bytes_text(*peak), bytes_text(*total), 100 * *peak / *total)};
}

std::optional<Warning> throttled(const TrainingEvidence& e) {
    const std::optional<double> share = e.machine.throttled_share;
    if (!e.on_gpu || e.machine.samples < kFewestSamples || !share) return std::nullopt;
    if (100 * *share <= kThrottledPercent) return std::nullopt;
    return Warning{"throttled",
                   fmt::format("the GPU ran below its clocks in {:.0f} % of {} samples ({}{}): look at its power limit "
                               "(nvidia-smi -q -d POWER) and its cooling",
                               100 * *share, e.machine.samples, e.machine.throttle_reasons,
                               e.machine.power_watts ? fmt::format(", {:.0f} W", *e.machine.power_watts) : "")};
}

}  // namespace

std::vector<Warning> judge(const TrainingEvidence& evidence) {
    std::vector<Warning> warnings;
    for (auto* const rule : {low_utilization, loader_wait, loader_spikes, vram_edge, ram_edge, throttled})
        if (std::optional<Warning> warning = rule(evidence)) warnings.push_back(std::move(*warning));
    return warnings;
}

std::vector<Warning> WarningGate::admit(std::vector<Warning> warnings) {
    std::erase_if(warnings, [this](const Warning& warning) { return !seen_.insert(warning.cause).second; });
    return warnings;
}

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
    if (report.dropped > 0 && report.scales_loss)
        MILLRACE_LOG(info, "epoch {}: {} of {} steps overflowed in f16; each was dropped and halved the loss scale", report.epoch,
                     report.dropped, report.steps);
    else if (report.dropped > 0)
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
