#pragma once
// Which of several ways is fastest, on a machine whose speed wanders. All are timed in turns, round by round, so that a round
// sees one machine; ways are compared by the ratios within rounds. A way that fails is a result.

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "tune/stepper.h"

namespace millrace::tune {

/// Times a way for about so many seconds.
using Timer = std::function<base::Result<Window>(double seconds)>;

struct RaceOptions {
    double window_seconds = 0.15;
    std::size_t most_rounds = 30;
    std::chrono::nanoseconds deadline{};  ///< by the clock; no window begins after it
    bool eliminate = true;                ///< false: all ways are timed in every round, to know each
    double tie = 0.01;                    ///< a difference that decides nothing
};

/// A number and the interval that holds it at 97 %.
struct Span {
    double value = 0, low = 0, high = 0;
};

struct Timed {
    std::vector<Window> windows;  ///< by round; fewer for a way that was left out later
    std::string failure;          ///< why it was not timed; empty: it was
    Span ratio{1, 1, 1};          ///< its time over that of the fastest way

    [[nodiscard]] bool ok() const { return failure.empty() && !windows.empty(); }
    [[nodiscard]] double median(double Window::*figure) const;      ///< over the windows
    [[nodiscard]] std::optional<double> joules_per_sample() const;  ///< mean, where at least half a second was measured
};

struct RaceResult {
    std::vector<Timed> ways;    ///< as given
    std::size_t fastest = 0;    ///< the lowest median ratio
    std::size_t preferred = 0;  ///< the first way that is not shown to be slower than the fastest, by more than a tie
    bool any = false;           ///< some way was timed; the two above mean nothing without
    std::size_t rounds = 0;
};

/// Ways are given in the order of preference. Stops when one is left, when those left are tied, or at the deadline.
RaceResult race(std::span<const Timer> ways, const RaceOptions& options, const base::Clock& clock,
                const std::function<void(std::size_t way)>& before_window = {});

/// a's time per sample over b's, in the rounds that both have; both were timed.
Span time_over(const Timed& a, const Timed& b);

/// Median of `values` (not empty) with the narrowest pair of order statistics around it that holds it at 97 %; of fewer than six
/// the whole range.
Span median_span(std::vector<double> values);

}  // namespace millrace::tune
