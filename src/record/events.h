#pragma once
// events.jsonl: what happened to a run and when, one flat JSON object per line: {"time", "kind", "text", field: value, ...}.
// Facts in time: a resumed run adds to them and never takes any back. docs/run-format.md lists the kinds.

#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "record/metrics.h"

namespace millrace::record {

/// Thread safe. Each event is handed to the system at once, so that a reader beside us and a crash find it whole.
class EventWriter {
public:
    /// Opens or creates the stream and goes on at its end. `clock` gives the time of each event.
    static base::Result<EventWriter> open(const io::Path& path, const base::Clock& clock = base::SteadyClock::shared());

    /// Takes events and keeps none: of a process that writes no run.
    static EventWriter to_nowhere() { return EventWriter(std::nullopt, base::SteadyClock::shared()); }

    /// `kind` is a word for programs ("started", "checkpoint", "warning"), `text` is for people, cut at 16 KiB. `fields`
    /// are not named time, kind or text. Lines are in the order of their times.
    base::Status append(std::string_view kind, std::string_view text, std::initializer_list<Metric> fields = {});
    base::Status sync();

private:
    EventWriter(std::optional<MetricsWriter> stream, const base::Clock& clock)
        : stream_(std::move(stream)), clock_(&clock), mutex_(std::make_unique<std::mutex>()) {}

    std::optional<MetricsWriter> stream_;
    const base::Clock* clock_;
    std::unique_ptr<std::mutex> mutex_;  ///< guards the stream
};

/// Whether events.jsonl in the folder of a run holds an event of this kind; false where it cannot be read.
bool has_event(const io::Path& folder, std::string_view kind);

}  // namespace millrace::record
