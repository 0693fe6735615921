#pragma once
// Where measured rows go. Producers (the sampler, the reader of the metrics ring) post rows; one thread hands them to every sink,
// so a slow disk or network never holds up the thread that measures.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "record/metric_table.h"

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

}  // namespace millrace::record
