#pragma once
// One event of a trace in the Chrome format as PyTorch's profiler (Kineto) writes it, and as report/kineto_export.h does.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/reading/json_scanner.h"
#include "diagnose/timeline/timeline.h"
#include "record/probe_records.h"

namespace millrace::diagnose {

/// Times beyond are no times: some 70 years around the origin, which holds microseconds since 1970, too. Differences of two times
/// fit into Time.
constexpr Time kLatest = Time{1} << 61, kLongest = Time{1} << 53;

enum class EventCategory : std::uint8_t {
    kOther,
    kKernel,
    kCopy,
    kSet,
    kCall,            ///< cuda_runtime, cuda_driver
    kSync,            ///< cuda_sync
    kAnnotation,      ///< user_annotation
    kPythonFunction,  ///< with_stack=True
    kOperator,        ///< cpu_op
    kOverhead,        ///< the profiler's own work
    kInstant,         ///< cpu_instant_event
    kSample,          ///< ours: what a thread did at a moment
    kCollection,      ///< ours: garbage collection
};

struct KinetoEvent {
    char phase = '?';
    EventCategory category = EventCategory::kOther;
    std::string name;
    std::optional<Time> begin;
    std::optional<Time> duration;
    bool absurd_time = false;
    std::optional<std::uint32_t> pid, tid;

    // args
    std::uint32_t correlation = 0;
    std::optional<std::uint32_t> stream, device;
    std::uint64_t bytes = 0, graph_node = 0;
    std::uint32_t shape = 0;
    record::LaunchSize size;
    bool collective = false;
    std::uint64_t waits_for = 0;    ///< number of a CUDA event
    std::uint32_t recorded_by = 0;  ///< correlation of the call that recorded it
    std::string call_stack;         ///< "a.py(1): f;b.py(2): g", innermost first
    // args of [memory]
    std::optional<double> reserved;
    bool on_device = false;
    // args that only our own exports have
    std::string ends, state, wait, label;
    std::uint64_t content = 0, rest = 0, launch = 0;
    std::vector<std::uint64_t> pointers;
    std::optional<std::uint32_t> call_kind, process;
    std::uint32_t notes = 0;
    bool failed = false, no_communication = false, invented = false;
    std::vector<std::pair<std::string, double>> counters;

    void clear();
    /// Of one that has a begin.
    [[nodiscard]] Time end() const { return *begin + std::max<Time>(duration.value_or(0), 0); }
};

/// Takes the value the scanner stands at, which is passed over when it is no object (false then).
bool scan_event(JsonScanner& scanner, KinetoEvent& event);

/// Nanoseconds of a number in microseconds, exact to its third decimal; nothing for what is no number or lies beyond `most`.
std::optional<Time> nanoseconds_of(std::string_view microseconds, Time most);
std::optional<double> double_of(std::string_view number);
std::optional<std::int64_t> integer_of(std::string_view number);
std::optional<std::uint64_t> unsigned_of(std::string_view number);

}  // namespace millrace::diagnose
