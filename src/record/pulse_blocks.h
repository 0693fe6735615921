#pragma once
// Pulses (calls that were counted and timed outside of windows) as blocks of whole steps: the speed of a program while it
// is not recorded. Blocks are long, because neighbouring steps resemble each other. Only steady running counts: not the first
// steps after a window, nor pauses, nor what comes with the program's end.

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "record/trace_file.h"

namespace millrace::record {

/// Less unrecorded running than this says nothing about a program's speed: hosts run ahead of GPUs and wait for them in turns.
constexpr double kLeastUnrecordedSeconds = 1, kLeastUnrecordedSteps = 20;

/// What counting one call adds to a program's time, in nanoseconds, where it can be told from nothing: 5 us on graph launches
/// (6,100 a second were 2 to 3 % slower on an H200 while CUPTI was subscribed); other calls showed no difference.
double counting_cost_ns(CallKind call);

/// What CUPTI adds to each launch while it only waits for the next window, in nanoseconds: 5 % of a program that launches 266
/// kernels in 7 ms on an H200, +-1.7 (docs/performance/doctor.md).
constexpr double kWaitingCostNs = 1200;

/// Of so many calls one is timed: one a step.
std::uint32_t pulse_stride(double calls_per_step);

/// Of (value, weight): the first value up to which half of the weight lies; of none 0.
double weighted_median(std::vector<std::pair<double, double>> values);

class PulseBlocks {
public:
    explicit PulseBlocks(std::uint32_t pid) : pid_(pid) {}

    /// A pulse at `time`, the `number`th of its call. Those that end no step (numbers that pulse_stride does not divide) are
    /// passed over; a step left out closes what was open. Gives a block when one is full (at least half a second of whole steps)
    /// and more steps have followed it.
    std::optional<TraceBlock> add(std::uint64_t time, std::uint64_t number);
    /// Counting stops here while the program goes on (a window), or is about another call from now on; a rest of ten steps or
    /// more is a block, too.
    std::optional<TraceBlock> close();
    /// The program is over: its last steps are no block, as they may not be training.
    void abandon() { open_ = false, full_.reset(); }
    /// Which call is counted, how many of it make a step, how many launches a step has (0 unknown: both), and whether those of
    /// one line, or of one import, alone are counted, which others of its kind do not add to. Closes first if that is new; pulses
    /// are passed over as long as the calls of a step are unknown.
    std::optional<TraceBlock> set_call(CallKind call, double calls_per_step, std::uint64_t launches_per_step,
                                       bool placed = false);

    /// The median step of the newest blocks; 0 while they hold too little to tell.
    [[nodiscard]] double step_ns() const { return step_ns_; }

private:
    std::optional<TraceBlock> give(std::optional<TraceBlock> block);
    [[nodiscard]] std::optional<TraceBlock> block_here() const;
    [[nodiscard]] bool is_long_pause(std::uint64_t nanoseconds) const;
    void begin(std::uint64_t time, std::uint64_t number);

    const std::uint32_t pid_;
    CallKind call_ = CallKind::kOther;
    double calls_per_step_ = 0, run_ahead_steps_ = 0;
    bool placed_ = false;
    std::uint64_t first_time_ = 0, first_number_ = 0;  ///< of the open block
    std::uint64_t last_time_ = 0, last_number_ = 0;    ///< the newest pulse that ends a whole step
    std::uint64_t newest_ = 0, newest_number_ = 0;
    std::uint32_t unsettled_ = 0;  ///< steps to pass over before a block begins
    bool open_ = false;
    std::optional<TraceBlock> full_;               ///< waits for steps that follow it
    std::deque<std::pair<double, double>> paces_;  ///< of a step in nanoseconds, and steps
    double newest_step_ns_ = 0, step_ns_ = 0, seconds_ = 0, steps_ = 0;
};

}  // namespace millrace::record
