#pragma once
// The events of an exported trace, and the rows of a viewer that they stand in.

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Which row of a viewer each part of a timeline stands in, and what is joined by an arrow.
class ExportRows {
public:
    explicit ExportRows(const diagnose::Timeline& timeline);

    /// (process, thread) of everything the host did.
    [[nodiscard]] const std::set<std::pair<std::uint32_t, std::uint32_t>>& host() const { return host_; }
    [[nodiscard]] const std::set<std::uint32_t>& devices() const { return devices_; }
    /// Names of (device, row).
    [[nodiscard]] const std::map<std::pair<std::uint32_t, std::uint64_t>, std::string>& device_rows() const { return names_; }
    [[nodiscard]] std::uint64_t row_of_work(std::size_t number) const { return rows_[number]; }
    [[nodiscard]] bool several_processes() const { return several_; }
    /// Whether a call and work of that correlation are both there.
    [[nodiscard]] bool joined(std::uint32_t process, std::uint32_t correlation) const;

private:
    void place_work(const diagnose::Timeline& timeline);
    void join(const diagnose::Timeline& timeline);

    std::set<std::pair<std::uint32_t, std::uint32_t>> host_;
    std::set<std::uint32_t> devices_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::string> names_;
    std::vector<std::uint64_t> rows_, joined_;
    bool several_ = false;
};

}  // namespace millrace::report
