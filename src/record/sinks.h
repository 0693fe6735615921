#pragma once
// Where measured rows go. Producers (the sampler, the reader of the metrics ring) post rows; one thread hands them to every sink,
// so a slow disk or network never holds up the thread that measures.
//
// Names and units of all forms come from the table of metrics. What is written reaches the system row by row (Prometheus apart),
// so a reader beside us and a crash find whole rows. Starting one fails when its file or port cannot be had.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "io/file.h"
#include "record/metric_table.h"
#include "sense/machine.h"

namespace millrace::record {

enum class RowKind : std::uint8_t { kSample, kInterval, kEpoch, kTest, kComponents };
std::string_view name_of(RowKind kind);  ///< "sample", "interval", "epoch", "test", "components"

struct SinkRow {
    RowKind kind = RowKind::kSample;
    double time = 0;                    ///< seconds since 1970
    std::optional<std::uint64_t> step;  ///< rows of training
    std::vector<Point> points;
};

/// One form of output. All calls come from one thread.
class Sink {
public:
    virtual ~Sink() = default;
    [[nodiscard]] virtual std::string name() const = 0;  ///< for messages: "CSV runs/a/samples.csv"
    virtual base::Status write(const SinkRow& row) = 0;
    /// Brings out what write() held back. Called by drain() and at the end, not after every row.
    virtual base::Status flush() { return base::ok(); }
};

/// Owns sinks and the thread that feeds them. A sink that fails is named in the log once and left out from then on; training and
/// watching go on without it.
class SinkThread {
public:
    explicit SinkThread(std::vector<std::unique_ptr<Sink>> sinks, std::size_t capacity = 4096);
    ~SinkThread() { drain(); }

    /// Never waits: when `capacity` rows are under way the row is dropped and counted.
    void post(SinkRow row);
    /// Waits until everything posted so far is written and flushed.
    void drain();
    [[nodiscard]] std::uint64_t dropped() const;
    [[nodiscard]] std::vector<std::string> failed() const;  ///< names and reasons of sinks that were left out

private:
    void loop(const std::stop_token& stop);
    /// Calls `act` on every sink that has not failed, and lets go those that fail now.
    void for_each_sink(const std::function<base::Status(Sink&)>& act);

    std::vector<std::unique_ptr<Sink>> sinks_;  ///< the thread's own once it runs
    const bool idle_for_good_;                  ///< there is no sink at all
    const std::size_t capacity_;
    mutable std::mutex mutex_;  ///< guards what follows
    std::condition_variable_any wake_;
    std::condition_variable served_;
    std::deque<SinkRow> rows_;
    std::uint64_t posted_ = 0, written_ = 0;  ///< rows taken in; rows the sinks are done with
    std::uint64_t drains_ = 0, drained_ = 0;  ///< asked for; served
    std::uint64_t drain_at_ = 0;              ///< posted_ when the newest drain was asked for
    std::uint64_t dropped_ = 0;
    std::vector<std::string> failed_;
    std::jthread thread_;
};

/// Samples, one row each: time (seconds since 1970), then every metric of the table that the machine can have (cores and GPUs by
/// number), empty where nothing was read. The columns are fixed by the facts when the file begins; those of one GPU are there,
/// empty, even when there is none. Replaces the file.
base::Result<std::unique_ptr<Sink>> csv_sink(const io::Path& path, const sense::MachineFacts& facts);

/// Samples in the eleven columns of the original monitor, one row per GPU and sample; without a GPU one row per sample with the
/// GPU fields empty: timestamp (local time), gpu_index, gpu_name, utilization_gpu_%, memory_used_mb, memory_total_mb (both MiB,
/// as the driver's own tool calls them), memory_usage_%, power_draw_w, power_limit_w, power_usage_%, temperature_c. What was not
/// read is empty, never 0. Replaces the file.
base::Result<std::unique_ptr<Sink>> monitor_csv_sink(const io::Path& path, const sense::MachineFacts& facts);

/// Every row as one JSON object per line: {"kind", "time", "step", key: value, ...}; what is not finite is null. `path` "-" is
/// the standard output; a file, such as samples.jsonl of a resumed run, goes on at its end, after a torn last line is closed off.
base::Result<std::unique_ptr<Sink>> json_lines_sink(const io::Path& path);

/// Scalars for TensorBoard: `folder`/events.out.tfevents.<unix>.<host>.<pid>; the folder is created. Tags of samples are the keys
/// ("gpu0/power_watts"), those of training rows have the row's kind before them ("epoch/validation_loss"), so that means over an
/// interval and over an epoch are two curves. Samples are put at the step of the newest training row; before the first one, and
/// when nothing is trained, at the number of their tick.
base::Result<std::unique_ptr<Sink>> tensorboard_sink(const io::Path& folder);

/// "millrace_gpu_sm_active_ratio", "millrace_gpu_energy_joules_total", "millrace_train_step_p50_seconds".
std::string prometheus_name(const MetricInfo& metric);

/// The newest value of every metric in the text format that Prometheus scrapes. Base units, as its conventions ask: percent
/// become ratios, milliseconds seconds, megahertz hertz. Not synchronised.
class PrometheusBoard {
public:
    explicit PrometheusBoard(sense::MachineFacts facts) : facts_(std::move(facts)) {}

    /// A sample replaces everything the sample before said: what it lacks is gone, not stale. Training rows replace what they
    /// hold.
    void take(const SinkRow& row);
    [[nodiscard]] std::string text() const;

private:
    [[nodiscard]] std::string labels_of(const MetricInfo& metric, int index) const;

    sense::MachineFacts facts_;
    std::map<std::pair<const MetricInfo*, int>, double> values_;
};

/// The newest value of every metric as Prometheus text, replaced as a whole at most once a second and on flush.
base::Result<std::unique_ptr<Sink>> prometheus_file_sink(const io::Path& path, const sense::MachineFacts& facts,
                                                         const base::Clock& clock = base::SteadyClock::shared());

/// The same on http://<address>:<port>/metrics until the sink goes. `address` is numeric or "localhost"; empty is 127.0.0.1. Port
/// 0 takes a free one; the name says which.
base::Result<std::unique_ptr<Sink>> prometheus_port_sink(const std::string& address, int port, const sense::MachineFacts& facts);

}  // namespace millrace::record
