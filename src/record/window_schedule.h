#pragma once
// When a program is recorded in full and when its steps are only counted. Pure: told the time and what was seen, it says what the
// probe of one process shall do.
//
// The first window begins at once and ends after a number of steady steps, or after fewer that a loop or marks tell, or that took
// three seconds or have many launches. What returns may be all from one evaluation to the next, with so many launches that five
// do. Later ones come at random times, and only as far as two budgets allow: the share of the run's time that recording costs,
// and the bytes that the run takes. They get shorter, down to kLeastSteps, when they are costly. Where that was asked for, CUPTI
// leaves for good after the third if it slows a program down between windows, too; from then on steps are only counted.

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>

#include "record/probe_mapping.h"
#include "record/step_watch.h"

namespace millrace::record {

struct ScheduleSettings {
    std::uint32_t steps_per_window = 50;
    std::uint32_t every = 2000;  ///< steps from window to window, in the mean of a long run
    double cost_share = 0.01;    ///< of the run's time, in windows after the first; of 30 seconds, where it is shorter
    std::uint64_t seed = 0;      ///< of the windows' times
    bool may_leave = false;      ///< CUPTI leaves after the third window, the last then, where its mere presence costs a lot
    std::uint64_t bytes_allowance = 30'000'000;
    double bytes_per_second = 10'000;  ///< beyond the allowance, in the mean
};

constexpr std::uint32_t kLeastSteps = 10;  ///< of a window

/// The control words of a probe.
struct ProbeOrder {
    ProbeMode mode = ProbeMode::kFull;
    CallKind pulse_call = CallKind::kLaunch;
    std::uint32_t full_calls = 0, sites_calls = 0;
    std::uint32_t pulse_stride = 1;
    bool pulse_led = false;        ///< counted where the program imports the call
    std::uint32_t pulse_site = 0;  ///< at which it is counted; 0: anywhere
    bool detach = false;           ///< CUPTI is not needed any more
    bool leads = false;            ///< the program's imports are led, so that it can leave
    bool operator==(const ProbeOrder&) const = default;
};

/// What is known when the schedule is asked.
struct ScheduleView {
    std::chrono::nanoseconds now{};
    bool obeyed = false;       ///< the probe has seen the last order
    bool in_full = false;      ///< the probe records in full now
    std::uint64_t pulses = 0;  ///< calls of pulse_call counted by the probe
    std::uint64_t bytes = 0;   ///< the run takes so far
    double pulse_step_ns = 0;  ///< a step without recording; 0 not known well enough
    bool stays = false;        ///< CUPTI was asked to leave and cannot
    std::uint32_t unseen_site =
        0;                       ///< a site at which calls are made, that may be a step's and that no window has shown; 0: none
    std::uint64_t launches = 0;  ///< seen in this window
    std::optional<StepFacts> facts;  ///< of this window
};

/// How surely a window shows training; less is surer, and what is less sure than a window before teaches nothing. Programs do
/// their steps launch by launch before they replay them as graphs; an evaluation updates nothing, and no thread of autograd
/// launches in it; then it is how steps were found.
struct Sureness {
    bool no_graphs = true, no_training = true;
    StepSource source = StepSource::kWindow;
    auto operator<=>(const Sureness&) const = default;
};
inline Sureness sureness(const StepFacts& facts) { return {!facts.graphs, !facts.trains, facts.source}; }

class WindowSchedule {
public:
    explicit WindowSchedule(const ScheduleSettings& settings, std::chrono::nanoseconds start);

    /// What the probe shall do from now on.
    const ProbeOrder& next(const ScheduleView& view);
    /// The program is over.
    void finish(const ScheduleView& view);
    /// The probe is gone: no more windows.
    void stop(const ScheduleView& view);

    /// What the newest window that ended has shown.
    [[nodiscard]] const std::optional<StepFacts>& shown() const { return shown_; }
    [[nodiscard]] const ProbeOrder& order() const { return order_; }
    [[nodiscard]] bool in_window() const { return phase_ == Phase::kFirst || phase_ == Phase::kWindow; }
    [[nodiscard]] bool is_early() const { return windows_ < 3; }      ///< a short program may have no more of them
    [[nodiscard]] std::uint64_t windows() const { return windows_; }  ///< that have ended
    /// Of what is believed of steps.
    [[nodiscard]] Sureness surest() const { return surest_; }
    [[nodiscard]] double calls_per_step() const { return counted_.per_step; }             ///< of the pulse call; 0 unknown
    [[nodiscard]] std::uint64_t launches_per_step() const { return launches_per_step_; }  ///< 0 unknown
    [[nodiscard]] double window_step_ns() const { return window_step_ns_; }               ///< 0 unknown
    /// Share of a step that CUPTI costs between windows by our estimate, where the host sets the pace.
    [[nodiscard]] double waiting_share() const;
    /// Share of a window's time that recording costs; absent until steps were timed inside and outside.
    [[nodiscard]] std::optional<double> window_cost() const;
    /// Share of the time until `now`, with what counting steps outside of windows takes, without waiting_share().
    [[nodiscard]] std::optional<double> cost(std::chrono::nanoseconds now) const;

private:
    enum class Phase { kFirst, kPause, kWindow };

    void during_first(const ScheduleView& view);
    void during_pause(const ScheduleView& view);
    /// A look by the clock, after `paused`.
    void look_now_and_then(const ScheduleView& view, std::chrono::nanoseconds paused);
    void during_window(const ScheduleView& view);
    void begin_window(const ScheduleView& view, std::uint32_t steps);
    void end_window(const ScheduleView& view);
    void learn(const ScheduleView& view);
    /// Whether so little of the open window's work is known that a loop inside of a step may pass for the step: less than three
    /// steps as they were, and what was found makes up less than half of the window.
    [[nodiscard]] bool shows_part(const ScheduleView& view) const;
    /// Whether calls are counted in a pause after the early windows; all the time unless that would cost too much.
    [[nodiscard]] bool counts_at(std::chrono::nanoseconds now) const;
    [[nodiscard]] std::uint32_t affordable_steps(const ScheduleView& view) const;
    [[nodiscard]] double affordable_bytes(const ScheduleView& view) const;
    void draw_next(std::chrono::nanoseconds end);
    /// Steps of a later window, where it costs little.
    [[nodiscard]] std::uint32_t few_steps() const;
    [[nodiscard]] double step_ns() const { return pulse_step_ns_ > 0 ? pulse_step_ns_ : window_step_ns_; }  ///< 0 unknown
    [[nodiscard]] double assumed_cost() const { return window_cost().value_or(kUnknownCost); }

    static constexpr double kUnknownCost = 0.4;

    const ScheduleSettings settings_;
    const std::chrono::nanoseconds start_;
    ProbeOrder order_;
    Phase phase_ = Phase::kFirst;
    std::chrono::nanoseconds since_{};       ///< of the phase; of the first window: its first launch
    std::chrono::nanoseconds early_over_{};  ///< when the early windows were
    std::chrono::nanoseconds over_at_{};     ///< the probe has left the window; 0 not yet
    std::chrono::nanoseconds pulsed_{};      ///< when a call was counted last
    std::chrono::nanoseconds next_at_{};
    bool launched_ = false, stopped_ = false;
    std::uint64_t bytes_at_ = 0;      ///< at the window's start
    std::uint32_t wanted_steps_ = 0;  ///< of the open window
    std::uint64_t pulses_at_ = 0, pulses_seen_ = 0;
    double paused_steps_ = 0;  ///< counted in this pause
    CountedCall counted_;
    bool counted_led_ = false;
    Sureness surest_;
    std::optional<StepFacts> shown_;
    bool stays_ = false;
    double window_step_ns_ = 0, pulse_step_ns_ = 0, bytes_per_step_ = 0;
    std::chrono::nanoseconds full_time_{}, later_time_{};  ///< in windows; in those after the first
    std::uint64_t launches_per_step_ = 0;
    std::uint64_t windows_ = 0, blind_ = 0;
};

}  // namespace millrace::record
