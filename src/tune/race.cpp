#include "tune/race.h"

#include <algorithm>
#include <cmath>

namespace millrace::tune {
namespace {

constexpr std::size_t kLeastRounds = 6;      ///< below, a median has no interval at 97 %
constexpr double kHopeless = 0.4;            ///< log of 1.5: two rounds are enough to leave such a way out
constexpr double kTail = 0.0157;             ///< of the binomial distribution, on either side: six rounds just do
constexpr double kLeastEnergySeconds = 0.5;  ///< a GPU's meter moves in steps of up to a tenth of a second

double median_of(std::vector<double> values) {
    const std::size_t half = values.size() / 2;
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(half));
    if (values.size() % 2 == 1) return values[half];
    const double above = values[half];
    return (above + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

/// Logarithms of a's time over b's in the rounds that both have.
std::vector<double> log_ratios(const Timed& a, const Timed& b) {
    std::vector<double> logs;
    for (std::size_t i = 0; i < std::min(a.windows.size(), b.windows.size()); ++i)
        logs.push_back(std::log(a.windows[i].seconds_per_sample / b.windows[i].seconds_per_sample));
    return logs;
}

class Race {
public:
    Race(std::span<const Timer> ways, const RaceOptions& options, const base::Clock& clock,
         const std::function<void(std::size_t)>& before_window)
        : ways_(ways), options_(options), clock_(clock), before_window_(before_window) {
        result_.ways.resize(ways.size());
        took_.resize(ways.size());
        for (std::size_t i = 0; i < ways.size(); ++i) running_.push_back(i);
    }

    RaceResult run() {
        while (!running_.empty() && result_.rounds < options_.most_rounds && round()) {
            result_.rounds += 1;
            compare();
            if (decided()) break;
        }
        compare();
        for (Timed& way : result_.ways)
            if (way.windows.empty() && way.failure.empty()) way.failure = "no time was left";
        prefer();
        return std::move(result_);
    }

private:
    /// False when the deadline came first: then a round that is not the first leaves nothing behind.
    bool round() {
        std::vector<std::size_t> timed;
        for (std::size_t at = 0; at < running_.size(); ++at) {
            // Rotated: none always follows the same other.
            const std::size_t way = running_[(at + result_.rounds) % running_.size()];
            const auto begin = clock_.now();
            if (begin >= options_.deadline || begin + took_[way] > options_.deadline) {
                if (result_.rounds > 0)
                    for (const std::size_t each : timed) result_.ways[each].windows.pop_back();
                return false;
            }
            if (before_window_) before_window_(way);
            auto window = ways_[way](options_.window_seconds);
            // What the first window took in setting up does not come again.
            if (result_.rounds > 0) took_[way] = clock_.now() - begin;
            if (window.ok()) {
                result_.ways[way].windows.push_back(*window);
                timed.push_back(way);
            } else {
                result_.ways[way].failure = window.error().text();
            }
        }
        std::erase_if(running_, [&](std::size_t way) { return !result_.ways[way].failure.empty(); });
        return true;
    }

    void compare() {
        const auto faster = [&](std::size_t a, std::size_t b) {
            const std::vector<double> logs = log_ratios(result_.ways[a], result_.ways[b]);
            return !logs.empty() && median_of(logs) < 0;
        };
        result_.any = false;
        for (std::size_t i = 0; i < result_.ways.size(); ++i) {
            if (!result_.ways[i].ok()) continue;
            if (!result_.any || faster(i, result_.fastest)) result_.fastest = i;
            result_.any = true;
        }
        if (!result_.any) return;
        for (std::size_t i = 0; i < result_.ways.size(); ++i) {
            Timed& way = result_.ways[i];
            if (way.ok()) way.ratio = time_over(way, result_.ways[result_.fastest]);
        }
        if (!options_.eliminate) return;
        std::erase_if(running_, [&](std::size_t i) { return i != result_.fastest && is_slower(result_.ways[i]); });
    }

    /// By measurement: fewer rounds show large differences alone.
    static bool is_slower(const Timed& way) {
        const double low = std::log(way.ratio.low);
        const std::size_t rounds = way.windows.size();
        return (rounds >= kLeastRounds && low > 0) || (rounds >= 2 && low > kHopeless);
    }

    [[nodiscard]] bool decided() const {
        if (options_.eliminate && running_.size() <= 1) return true;
        if (result_.rounds < kLeastRounds) return false;
        return std::ranges::all_of(running_, [&](std::size_t i) {
            const Span& ratio = result_.ways[i].ratio;
            return options_.eliminate ? ratio.high < 1 + options_.tie : ratio.high < ratio.low * (1 + 2 * options_.tie);
        });
    }

    void prefer() {
        for (std::size_t i = 0; result_.any && i < result_.ways.size(); ++i) {
            const Timed& way = result_.ways[i];
            // One that was left out may still be tied: slower by measurement, and too little to matter.
            if (!way.ok() || (is_slower(way) && way.ratio.value > 1 + options_.tie)) continue;
            result_.preferred = i;
            return;
        }
    }

    std::span<const Timer> ways_;
    const RaceOptions& options_;
    const base::Clock& clock_;
    const std::function<void(std::size_t)>& before_window_;
    std::vector<std::size_t> running_;
    std::vector<std::chrono::nanoseconds> took_;  ///< the newest window of each way
    RaceResult result_;
};

}  // namespace

Span median_span(std::vector<double> values) {
    MILLRACE_ASSERT(!values.empty());
    std::ranges::sort(values);
    const std::size_t n = values.size();
    // P(at most k of n values lie below the median) = sum of binomials over 2^n.
    double term = std::exp2(-static_cast<double>(n)), tail = term;
    std::size_t outside = 0;
    while (outside + 1 < (n + 1) / 2) {
        term *= static_cast<double>(n - outside) / static_cast<double>(outside + 1);
        if (tail + term > kTail) break;
        tail += term;
        outside += 1;
    }
    return {median_of(values), values[outside], values[n - 1 - outside]};
}

Span time_over(const Timed& a, const Timed& b) {
    const Span log = median_span(log_ratios(a, b));
    return {std::exp(log.value), std::exp(log.low), std::exp(log.high)};
}

double Timed::median(double Window::*figure) const {
    std::vector<double> values;
    for (const Window& window : windows) values.push_back(window.*figure);
    return values.empty() ? 0 : median_of(std::move(values));
}

std::optional<double> Timed::joules_per_sample() const {
    double joules = 0, samples = 0, seconds = 0;
    for (const Window& window : windows) {
        if (!window.joules_per_sample) continue;
        const double count = window.seconds / window.seconds_per_sample;
        joules += *window.joules_per_sample * count;
        samples += count;
        seconds += window.seconds;
    }
    return seconds >= kLeastEnergySeconds ? std::optional(joules / samples) : std::nullopt;
}

RaceResult race(std::span<const Timer> ways, const RaceOptions& options, const base::Clock& clock,
                const std::function<void(std::size_t)>& before_window) {
    return Race(ways, options, clock, before_window).run();
}

}  // namespace millrace::tune
