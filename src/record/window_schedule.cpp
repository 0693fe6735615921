#include "record/window_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "record/pulse_blocks.h"

namespace millrace::record {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kEarlyWindows = 3;
constexpr std::uint32_t kSitedSteps = 10;      ///< of a window: every launch with its site and arguments
constexpr std::uint32_t kFirstSites = 10'000;  ///< launches with sites while steps are not known: a change would cut the window
constexpr nanoseconds kLeastFirst = std::chrono::milliseconds{300};   ///< long unrolled loops pass for steps at first ...
constexpr nanoseconds kLeastSteady = std::chrono::milliseconds{200};  ///< ... and loops over layers, after a slow start
constexpr nanoseconds kLongestFirst = std::chrono::minutes{10}, kLongestBlind = std::chrono::minutes{2};
constexpr std::uint32_t kFewFirst = 15;               ///< steady steps that do for the first window ...
constexpr double kFirstTime = 3e9, kEarlyTime = 1e9;  ///< ... when they take so long, ns; the same of the early ones
constexpr std::uint64_t kEnoughLaunches =
    160;  ///< of a step: where there are more, fewer steps (kFewFirst at least) do for early windows
constexpr std::uint64_t kManyLaunches = 60'000;           ///< of an early window: where steps have so many, even fewer do ...
constexpr std::uint32_t kFewestSteps = 5, kFewSited = 3;  ///< ... down to these; all from one evaluation to the next may be one
constexpr std::uint64_t kFirstBytesPart = 2;              ///< the first window takes at most this part of the allowance
constexpr double kLeastGap = 8;                           ///< steps from a window to the next
constexpr double kBudgetedRun = 30;                       ///< s: shorter runs may cost as much as one of that length
constexpr nanoseconds kBlindWindow = std::chrono::seconds{2}, kBlindPause = std::chrono::seconds{60};
constexpr nanoseconds kLeastPatience = std::chrono::seconds{2};  ///< for a window whose pulses do not come
constexpr nanoseconds kSettle = std::chrono::milliseconds{300};
constexpr double kMostSteps = 0.8;
constexpr std::uint64_t kLeastPeriods = 3;  ///< in which a step is found (record/periodicity.h)
constexpr double kShownPart = 0.5;          ///< of a window's time, from which on its steps are taken for what is in it
constexpr double kPatience = 6;             ///< times what its steps should take
constexpr double kFewCalls = 16;            ///< of a step, that are always counted; more only as long as counting them takes ...
constexpr double kCountingShare = 0.005;    ///< ... no more of the time than this, else now and then
constexpr double kCountedCall = 500;        ///< ns that counting a call may take where no difference was seen
constexpr double kPulseCycle = 10e9, kLeastSlice = 2e9;  ///< ns; a slice holds three blocks, by which the pace is known
constexpr nanoseconds kFirstSlice = std::chrono::milliseconds{5500};  ///< even a short run shall have what `compare` needs

/// CUPTI leaves where it costs more than this share of a step while it only waits for the next window.
constexpr double kWaitingShare = 0.01;

/// Steps of an early window that has `usual` at least where they are not very long.
std::uint32_t at_least(std::uint32_t usual, std::uint32_t fewest, std::uint64_t launches_per_step) {
    const std::uint64_t most = kManyLaunches / std::max<std::uint64_t>(1, launches_per_step);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most, fewest, usual));
}

double seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

WindowSchedule::WindowSchedule(const ScheduleSettings& settings, nanoseconds start)
    : settings_(settings), start_(start), since_(start) {
    order_ = {ProbeMode::kFull, CallKind::kOther, 0, kFirstSites};
    order_.leads = settings.may_leave;
}

const ProbeOrder& WindowSchedule::next(const ScheduleView& view) {
    if (stopped_) return order_;
    if (view.pulse_step_ns > 0) pulse_step_ns_ = view.pulse_step_ns;
    if (view.pulses != pulses_seen_) pulsed_ = view.now;
    const std::uint64_t grown = view.pulses >= pulses_seen_ ? view.pulses - pulses_seen_ : view.pulses;
    pulses_seen_ = view.pulses;
    if (phase_ == Phase::kPause && calls_per_step() > 0) paused_steps_ += static_cast<double>(grown) / calls_per_step();
    switch (phase_) {
        case Phase::kFirst: during_first(view); break;
        case Phase::kPause: during_pause(view); break;
        case Phase::kWindow: during_window(view); break;
    }
    return order_;
}

void WindowSchedule::finish(const ScheduleView& view) {
    shown_.reset();
    if (stopped_ || phase_ != Phase::kFirst) return;
    shown_ = view.facts;
    learn(view);
}

void WindowSchedule::stop(const ScheduleView& view) {
    if (stopped_) return;
    stopped_ = true;
    if (in_window() && (phase_ != Phase::kFirst || launched_)) end_window(view);
    phase_ = Phase::kPause;
    order_.mode = ProbeMode::kOff;
}

void WindowSchedule::learn(const ScheduleView& view) {
    if (!view.facts || sureness(*view.facts) > surest_) return;
    const bool surer = sureness(*view.facts) < surest_;
    const StepFacts& facts = *view.facts;
    surest_ = sureness(facts);
    launches_per_step_ = facts.launches_per_step;
    if (facts.step_ns > 0) window_step_ns_ = facts.step_ns;
    const double waiting = kWaitingCostNs * static_cast<double>(facts.launches_per_step);
    const bool dear = settings_.may_leave && waiting > kWaitingShare * facts.step_ns;
    const bool led = facts.led.per_step > 0 && facts.step_ns > 0 && (dear || order_.pulse_led) && !facts.graphs;
    const CountedCall& found = led ? facts.led : facts.pulse;
    if (found.per_step == 0) return;
    // A site is counted on where a window shows none.
    if (!surer && counted_.site != 0 && counted_led_ == led && found.site == 0) return;
    counted_ = found;
    counted_led_ = led;
}

void WindowSchedule::during_first(const ScheduleView& view) {
    if (!launched_) {
        if (view.launches == 0) return;
        launched_ = true;
        since_ = view.now;
        bytes_at_ = view.bytes;
    }
    const nanoseconds taken = view.now - since_;
    const bool too_long = taken > (view.facts ? kLongestFirst : kLongestBlind) ||
                          view.bytes - bytes_at_ > settings_.bytes_allowance / kFirstBytesPart;
    const bool told = view.facts && view.facts->source != StepSource::kNone && view.facts->source < StepSource::kPeriod;
    // Steps that a loop or marks tell may differ in length.
    const std::uint64_t steady = !view.facts ? 0 : told ? view.facts->steps : view.facts->steady_steps;
    const std::uint64_t launches = view.facts ? view.facts->launches_per_step : 0;
    const bool several = steady >= at_least(kFewFirst, kFewestSteps, launches);
    const bool slow = several && static_cast<double>(steady) * view.facts->step_ns >= kFirstTime;
    const bool many = several && steady * launches >= kEnoughLaunches * settings_.steps_per_window;
    const bool lasting = view.facts && (view.facts->step_ns <= 0 || static_cast<double>(steady) * view.facts->step_ns >=
                                                                        static_cast<double>(kLeastSteady.count()));
    const bool enough =
        ((told && several) || slow || many || steady >= settings_.steps_per_window) && taken >= kLeastFirst && lasting;
    if (enough || too_long) end_window(view);
}

void WindowSchedule::end_window(const ScheduleView& view) {
    const bool was_first = phase_ == Phase::kFirst;
    const std::uint64_t steps = view.facts ? view.facts->steps : 0;
    const bool early = !was_first && windows_ < kEarlyWindows;
    blind_ = view.facts ? 0 : blind_ + (early ? 0 : 1);
    if (steps > 0 && !early)
        bytes_per_step_ = static_cast<double>(view.bytes - std::min(view.bytes, bytes_at_)) / static_cast<double>(steps);
    const nanoseconds end = over_at_ > nanoseconds{} ? over_at_ : view.now;
    full_time_ += end - since_;
    if (!was_first) later_time_ += end - since_;
    if (++windows_ == kEarlyWindows) early_over_ = end;
    phase_ = Phase::kPause;
    since_ = end;
    over_at_ = {};
    paused_steps_ = 0;
    shown_ = view.facts;
    learn(view);
    // What is counted is counted in windows, too.
    order_.pulse_call = counted_.call;
    order_.pulse_led = counted_led_;
    order_.pulse_site = counted_.site;
    order_.pulse_stride = pulse_stride(calls_per_step());
    order_.mode = calls_per_step() > 0 ? ProbeMode::kPulse : ProbeMode::kOff;
    order_.detach = order_.pulse_led && windows_ >= kEarlyWindows && !stays_;
    order_.full_calls = order_.sites_calls = 0;
    draw_next(end);
}

/// At a random time, so that no habit of the program decides what windows show; in the mean after half the time that has passed,
/// since the end of the run is unknown, and after `every` steps at the latest.
void WindowSchedule::draw_next(nanoseconds end) {
    std::uint64_t word = settings_.seed + 0x9e3779b97f4a7c15 * (windows_ + 1);
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    const double chance = static_cast<double>((word ^ (word >> 31)) >> 11) * 0x1p-53;
    double gap = static_cast<double>((end - start_).count()) / 2;
    if (step_ns() > 0) gap = std::max(kLeastGap * step_ns(), std::min(gap, settings_.every * step_ns()));
    next_at_ = end + nanoseconds{static_cast<std::int64_t>((chance + 0.5) * gap)};
}

std::uint32_t WindowSchedule::affordable_steps(const ScheduleView& view) const {
    const double elapsed = std::max(kBudgetedRun, seconds(view.now - start_));
    const double time_left = settings_.cost_share * elapsed - assumed_cost() * seconds(later_time_);
    double steps = few_steps();
    if (const double each = assumed_cost() * 1e-9 * window_step_ns_; each > 0) steps = std::min(steps, time_left / each);
    if (bytes_per_step_ > 0) steps = std::min(steps, affordable_bytes(view) / bytes_per_step_);
    return steps >= 1 ? static_cast<std::uint32_t>(steps) : 0;
}

double WindowSchedule::affordable_bytes(const ScheduleView& view) const {
    return static_cast<double>(settings_.bytes_allowance) + settings_.bytes_per_second * seconds(view.now - start_) -
           static_cast<double>(view.bytes);
}

std::uint32_t WindowSchedule::few_steps() const {
    double most = step_ns() > 0 ? std::min(kEarlyTime / step_ns(), 1e6) : 1e6;
    if (launches_per_step_ > 0)
        most = std::min(most, kEnoughLaunches / 2.0 * settings_.steps_per_window / static_cast<double>(launches_per_step_));
    const std::uint32_t steps = std::min(settings_.steps_per_window / 2, static_cast<std::uint32_t>(most));
    return std::max(kFewestSteps, steps);
}

/// No steps were found, or they do not come any more: a look now and then, within the same budgets.
void WindowSchedule::look_now_and_then(const ScheduleView& view, nanoseconds paused) {
    const double elapsed = seconds(view.now - start_);
    const bool time_allows = assumed_cost() * seconds(later_time_ + kBlindWindow) <= settings_.cost_share * elapsed;
    if (windows_ < kEarlyWindows ? paused >= kBlindWindow : paused >= kBlindPause && time_allows && affordable_bytes(view) > 0)
        begin_window(view, 0);
}

void WindowSchedule::during_pause(const ScheduleView& view) {
    const nanoseconds paused = view.now - since_;
    if (view.stays) stays_ = true;
    if (stays_) order_.detach = false;
    if (order_.detach) return;
    if (calls_per_step() <= 0 || blind_ >= kEarlyWindows) return look_now_and_then(view, paused);
    // The program does something else by now, which needs that call no more.
    if (windows_ >= kEarlyWindows && order_.mode == ProbeMode::kPulse && view.now - pulsed_ >= kBlindPause)
        return look_now_and_then(view, std::min(paused, view.now - pulsed_));
    order_.mode = counts_at(view.now) ? ProbeMode::kPulse : ProbeMode::kOff;
    // By the clock, too: a program that does something else is looked at.
    const double passed = std::max(paused_steps_, step_ns() > 0 ? static_cast<double>(paused.count()) / step_ns() : 0);
    if ((view.now < next_at_ && view.unseen_site == 0) || passed < kLeastGap) return;
    const std::uint32_t steps = affordable_steps(view);
    if (steps >= kFewestSteps) begin_window(view, steps);
}

bool WindowSchedule::counts_at(nanoseconds now) const {
    if (calls_per_step() <= kFewCalls || step_ns() <= 0 || order_.pulse_led) return true;
    if (now - early_over_ < kFirstSlice) return true;
    const double share = calls_per_step() * std::max(kCountedCall, counting_cost_ns(order_.pulse_call)) / step_ns();
    const double slice = std::max(kLeastSlice, kPulseCycle * kCountingShare / share);
    return share <= kCountingShare ||
           std::fmod(static_cast<double>((now - early_over_).count()), slice * share / kCountingShare) < slice;
}

void WindowSchedule::begin_window(const ScheduleView& view, std::uint32_t steps) {
    phase_ = Phase::kWindow;
    since_ = view.now;
    bytes_at_ = view.bytes;
    pulses_at_ = view.pulses;
    wanted_steps_ = steps;
    order_.mode = ProbeMode::kFull;
    order_.detach = false;
    if (steps == 0) {
        // Launches stand in for what is counted, which does not come any more.
        order_.pulse_call = CallKind::kOther;
        order_.pulse_led = false;
        order_.pulse_site = 0;
        order_.sites_calls = kFirstSites;
        return;
    }
    if (view.unseen_site != 0) order_.pulse_site = view.unseen_site;
    order_.full_calls = static_cast<std::uint32_t>(std::lround(steps * calls_per_step()));
    const std::uint32_t sited = std::min(steps, at_least(kSitedSteps, kFewSited, launches_per_step_));
    order_.sites_calls = static_cast<std::uint32_t>(std::lround(sited * calls_per_step()));
}

void WindowSchedule::during_window(const ScheduleView& view) {
    // A program that is stopped obeys later; its window has not begun.
    if (!view.obeyed && !view.in_full) {
        since_ = view.now;
        pulses_at_ = view.pulses;
    }
    const nanoseconds taken = view.now - since_;
    if (wanted_steps_ == 0) {
        const bool steady = view.facts && view.facts->steady_steps >= settings_.steps_per_window;
        if (steady || taken >= kBlindWindow) end_window(view);
        return;
    }
    const std::uint64_t counted = view.pulses >= pulses_at_ ? view.pulses - pulses_at_ : view.pulses;
    const bool left_by_itself = view.obeyed && !view.in_full;
    const auto expected = nanoseconds{static_cast<std::int64_t>(kPatience * wanted_steps_ * window_step_ns_)};
    const bool over = left_by_itself || counted > order_.full_calls + static_cast<std::uint64_t>(calls_per_step()) ||
                      taken > std::max(kLeastPatience, expected);
    if (!over) return;
    // What the GPU did comes a little later than the calls: wait for most of it, or there is nothing to learn from.
    if (over_at_ == nanoseconds{}) over_at_ = view.now;
    // The early ones do not: a short program is over by then.
    ScheduleView known = view;
    if (shows_part(view)) known.facts.reset();
    const bool arrived = known.facts && static_cast<double>(known.facts->steps) >= kMostSteps * wanted_steps_;
    if (arrived || windows_ < kEarlyWindows || view.now - over_at_ >= kSettle) end_window(known);
}

bool WindowSchedule::shows_part(const ScheduleView& view) const {
    if (!view.facts || view.facts->launches_per_step >= launches_per_step_) return false;
    const double shown = static_cast<double>(view.facts->steps) * view.facts->step_ns;
    return view.launches < kLeastPeriods * launches_per_step_ &&
           shown < kShownPart * static_cast<double>((over_at_ - since_).count());
}

std::optional<double> WindowSchedule::window_cost() const {
    if (window_step_ns_ <= 0 || pulse_step_ns_ <= 0) return std::nullopt;
    return std::clamp(1 - pulse_step_ns_ / window_step_ns_, 0.0, 1.0);
}

double WindowSchedule::waiting_share() const {
    return step_ns() > 0 ? kWaitingCostNs * static_cast<double>(launches_per_step_) / step_ns() : 0;
}

std::optional<double> WindowSchedule::cost(nanoseconds now) const {
    const auto inside = window_cost();
    if (!inside || now <= start_) return std::nullopt;
    nanoseconds full = full_time_;
    if (in_window() && (phase_ != Phase::kFirst || launched_)) full += now - since_;
    const double share = std::min(1.0, seconds(full) / seconds(now - start_));
    const double each = order_.pulse_led ? 0 : counting_cost_ns(order_.pulse_call);
    const double counting = std::min(1.0, each * calls_per_step() / pulse_step_ns_);
    return *inside * share + counting * (1 - share);
}

}  // namespace millrace::record
