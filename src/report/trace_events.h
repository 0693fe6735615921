#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "diagnose/timeline/timeline.h"
#include "io/file.h"

namespace millrace::report {

/// `text` as JSON, with quotes; whatever it holds, the result is valid.
std::string json_text(std::string_view text);

/// The list of events of a trace in Chrome's format, written one after another. Times are of the timeline; `origin` is taken off.
class TraceEvents {
public:
    TraceEvents(io::ByteSink& sink, diagnose::Time origin, std::uint64_t cap) : sink_(&sink), origin_(origin), cap_(cap) {}

    /// Anything outside of the list; never left out.
    base::Status raw(std::string_view text);

    /// Begins an event that may be left out when the cap is reached.
    TraceEvents& begin(char phase, std::string_view category, std::string_view name, std::uint64_t pid, std::uint64_t tid);
    TraceEvents& at(diagnose::Time time);
    TraceEvents& lasts(diagnose::Time duration);
    TraceEvents& field(std::string_view json);  ///< `"bp":"e"`
    TraceEvents& argument(std::string_view name, std::string_view json);
    TraceEvents& argument(std::string_view name, std::uint64_t value) {
        return argument(name, std::string_view(fmt::to_string(value)));
    }
    TraceEvents& text_argument(std::string_view name, std::string_view text) { return argument(name, json_text(text)); }
    base::Status end();

    [[nodiscard]] std::uint64_t events() const { return events_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

private:
    io::ByteSink* sink_;
    diagnose::Time origin_;
    std::uint64_t cap_, bytes_ = 0, events_ = 0, left_out_ = 0;
    std::string event_, arguments_;
};

}  // namespace millrace::report
