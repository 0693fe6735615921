#pragma once
// The machine beside a run: samples it on a schedule, keeps the samples in samples.jsonl, and hands them and the rows of training
// to the other sinks that the recipe names. Sampling and writing run on threads of their own. As a listener it adds what the
// machine did to the reports of intervals and epochs.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "record/metrics.h"
#include "record/sinks.h"
#include "record/statistics.h"
#include "sense/machine.h"
#include "sense/sampler.h"
#include "train/listener.h"
#include "train/run_settings.h"

namespace millrace::train {

constexpr std::uint64_t kFewestSamples = 3;  ///< of the machine: one reading of a driver's average says little

MachineReport machine_report(const record::SampleSummary& summary);

class Telemetry final : public Listener {
public:
    /// Opens the sinks in the folder of the run and starts to sample `source` (none: the machine is not watched). `events` is
    /// borrowed. A sink that cannot be opened is an error here, before any step was run.
    static base::Result<std::unique_ptr<Telemetry>> start(const TelemetrySettings& settings, const io::Path& run,
                                                          std::unique_ptr<sense::Source> source, record::EventWriter& events,
                                                          const base::Clock& clock);
    ~Telemetry() override;

    void on_start(const StartReport& report) override { on_gpu_ = report.on_gpu; }
    void on_interval(IntervalReport& report) override;
    base::Status on_epoch(EpochReport& report) override {
        add_machine(report.pace, epoch(), report.samples_per_second);
        return base::ok();
    }
    /// Fewer than three samples stay, so that epochs shorter than the interval are averaged together.
    void on_epoch_begin() override;

    /// What the machine did since the epoch began; empty with fewer than three samples.
    MachineReport epoch();
    /// The newest sample, for events: "GPU: 85% | ... | disk 120.0 MB/s"; empty before the first.
    [[nodiscard]] std::string newest_text() const;

    /// Hands a row of training to the sinks. Never waits.
    void post(record::RowKind kind, const std::vector<record::Metric>& row);
    [[nodiscard]] record::EventWriter& events() { return events_; }

private:
    Telemetry(record::EventWriter& events, std::unique_ptr<sense::Source> source);
    void receive(const sense::Sample& sample);
    void report_missed();
    void add_machine(PaceReport& pace, MachineReport machine, double samples_per_second) const;

    record::EventWriter& events_;
    std::unique_ptr<sense::Source> source_;
    std::unique_ptr<record::SinkThread> sinks_;
    bool on_gpu_ = false;       ///< the machine's GPU trains, so that its energy is the run's
    mutable std::mutex mutex_;  ///< guards what follows
    record::SampleSummary interval_, epoch_;
    std::optional<sense::Sample> newest_;
    std::optional<std::uint64_t> sequence_;  ///< of the newest sample
    std::vector<bool> lost_;                 ///< GPUs that were reported as lost
    std::uint64_t missed_ = 0;               ///< samples not reported yet; the sampler's own, like the next, while it runs
    std::optional<std::chrono::nanoseconds> missed_reported_;
    std::unique_ptr<sense::Sampler> sampler_;
};

}  // namespace millrace::train
