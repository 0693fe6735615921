#pragma once
// Turns the events of a trace into a timeline. Keeps what a diagnosis uses, in records of some 80 bytes (functions and operators:
// 24), so that a trace of a gigabyte takes a tenth of that.

#include <map>
#include <unordered_map>

#include "diagnose/reading/call_lines.h"
#include "diagnose/reading/gpu_models.h"
#include "diagnose/reading/kineto_event.h"
#include "diagnose/reading/name_table.h"
#include "diagnose/reading/stack_builder.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

class CallIndex;

struct KinetoLimits {
    std::size_t records = std::size_t{1} << 24;  ///< kept at most; what follows in the trace is left out
    std::size_t remarks = 32;
};

/// The object "millrace" in the head of a trace that we exported: what a timeline has and the trace's events have no place for.
struct OwnSection {
    Time origin = 0;  ///< to be added to the times of events
    bool present = false;
};

class KinetoCollector {
public:
    explicit KinetoCollector(const KinetoLimits& limits = {}) : limits_(limits) { timeline_.source = Source::kKineto; }

    void take(const KinetoEvent& event);
    struct DeviceFacts {
        std::string name;
        std::optional<double> memory;
        std::optional<ComputeCapability> capability;
        std::uint32_t multiprocessors = 0;  ///< 0: not said
    };
    /// A device, as the trace's head has it.
    void device(std::uint32_t id, const DeviceFacts& facts);
    /// What times of events count from, in nanoseconds since 1970.
    void base_time(std::int64_t time) { base_time_ = time; }
    void remark(std::string text);
    [[nodiscard]] bool full() const { return records_ >= limits_.records; }
    [[nodiscard]] std::uint64_t events() const { return events_; }
    /// For what the trace's head has; events are kept elsewhere until they are joined.
    [[nodiscard]] Timeline& timeline() { return timeline_; }

    /// What was collected, joined and in order; times of events have the section's origin added. Nothing may be taken afterwards.
    /// Without `sources` lines stay those where functions begin.
    Timeline finish(const OwnSection& own, const FindSources& sources = {});

private:
    struct Device {
        DeviceFacts facts;
        std::size_t work = 0;
    };
    struct Sync {
        Time begin, end;
        std::uint32_t process, correlation, stream, recorded_by;
        std::uint64_t event;
        std::uint32_t name;
    };

    void take_complete(const KinetoEvent& event);
    void take_work(const KinetoEvent& event, WorkKind kind);
    void take_call(const KinetoEvent& event);
    void take_sync(const KinetoEvent& event);
    void take_operator(const KinetoEvent& event);
    void take_instant(const KinetoEvent& event);
    void take_memory(const KinetoEvent& event);
    void take_counters(const KinetoEvent& event);
    void take_metadata(const KinetoEvent& event);
    void add_range(std::vector<Range>& ranges, const KinetoEvent& event);
    std::uint32_t stack_number(std::string_view text);

    [[nodiscard]] std::optional<std::int64_t> made() const;
    void drop_inner_calls();
    void join();
    void join_syncs(const CallIndex& index);
    void name_processes();
    void describe_device(bool own);
    void add_window();
    void shift(Time origin);
    void write_remarks(bool own);
    void write_remarks_on_lines();

    KinetoLimits limits_;
    Timeline timeline_;
    NameTable names_;
    StackBuilder functions_;
    std::unordered_map<std::string, std::uint32_t> stacks_;  ///< of calls and samples that have one of their own
    std::vector<Sync> syncs_;
    std::vector<std::uint32_t> process_of_work_;  ///< as our own exports say; empty otherwise
    std::map<std::uint32_t, Device> devices_;
    std::unordered_map<std::uint32_t, std::string> process_names_;
    std::vector<std::string> remarks_;
    std::size_t records_ = 0;
    std::uint64_t events_ = 0, absurd_ = 0, left_out_ = 0;
    std::optional<double> reserved_;
    std::optional<std::int64_t> base_time_;
    Time profiler_time_ = 0;
    CallLines lines_;
    bool python_ = false, stacks_full_ = false;
};

}  // namespace millrace::diagnose
