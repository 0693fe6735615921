#pragma once
// The machine beside a run: looks at it on a schedule, keeps the looks in samples.jsonl, and hands them and the rows of training
// to whatever other sinks the recipe names. None of it runs on the training thread.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "record/events.h"
#include "record/sink.h"
#include "record/statistics.h"
#include "sense/machine.h"
#include "sense/sampler.h"
#include "train/machine_report.h"
#include "train/metrics_rows.h"
#include "train/run_settings.h"

namespace millrace::train {

class Telemetry {
public:
    /// Opens the sinks in the folder of the run and starts to sample `source` (none: the machine is not watched). `events` is
    /// borrowed. A sink that cannot be opened is an error here, before any step was run.
    static base::Result<std::unique_ptr<Telemetry>> start(const TelemetrySettings& settings, const io::Path& run,
                                                          std::unique_ptr<sense::Source> source, record::EventWriter& events,
                                                          const base::Clock& clock);
    ~Telemetry();
    Telemetry(const Telemetry&) = delete;
    Telemetry& operator=(const Telemetry&) = delete;

    /// What the machine did since the last call.
    MachineReport take_interval();
    /// What it did since begin_epoch(). Fewer than three looks say nothing: the report is empty, and the next begin_epoch() keeps
    /// them, so that epochs shorter than the interval are averaged together.
    MachineReport epoch();
    void begin_epoch();
    /// The newest look, for events: "GPU: 85% | ... | disk 120.0 MB/s"; empty before the first.
    [[nodiscard]] std::string newest_text() const;

    /// Hands a row of training to the sinks. Never waits.
    void post(record::RowKind kind, const Row& row);
    [[nodiscard]] record::EventWriter& events() { return events_; }

private:
    Telemetry(record::EventWriter& events, std::unique_ptr<sense::Source> source);
    void receive(const sense::Sample& sample);
    void tell_missed();

    record::EventWriter& events_;
    std::unique_ptr<sense::Source> source_;
    std::unique_ptr<record::SinkThread> sinks_;
    mutable std::mutex mutex_;  ///< guards what follows
    record::SampleSummary interval_, epoch_;
    std::optional<sense::Sample> newest_;
    std::optional<std::uint64_t> sequence_;  ///< of the newest sample
    std::vector<bool> lost_;                 ///< GPUs that were reported as lost
    std::uint64_t missed_ = 0;               ///< looks no event has told of; the sampler's own, like the next, while it runs
    std::optional<std::chrono::nanoseconds> missed_told_;
    std::unique_ptr<sense::Sampler> sampler_;
};

}  // namespace millrace::train
