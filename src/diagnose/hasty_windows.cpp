#include "diagnose/hasty_windows.h"

#include <algorithm>
#include <cmath>

#include "diagnose/overhead.h"

namespace millrace::diagnose {
namespace {

constexpr double kHasty = 1.25;          ///< times a window's step, outside of windows
constexpr double kTooFast = 1.1;         ///< the same of all windows together
constexpr std::size_t kLeastSteps = 10;  ///< as in the shortest usual window (record/window_schedule.h)

/// Mean of steps, with the evaluations between them: blocks have these, too.
class Mean {
public:
    void add(const WindowSteps& window) {
        steps_ += window.steps.size();
        for (const Step& step : window.steps) sum_ += step.end - step.begin;
        for (const Phase& phase : window.evaluations) sum_ += phase.end - phase.begin;
    }
    [[nodiscard]] double ms() const {
        return static_cast<double>(sum_) * 1e-6 / static_cast<double>(std::max<std::size_t>(1, steps_));
    }
    [[nodiscard]] std::size_t steps() const { return steps_; }

private:
    Time sum_ = 0;
    std::size_t steps_ = 0;
};

}  // namespace

std::size_t leave_out_hasty(std::span<const Block> unrecorded, std::vector<WindowSteps>& windows) {
    const auto outside = undisturbed_step_ms(unrecorded);
    if (!outside) return 0;
    const auto is_hasty = [&](const WindowSteps& window) {
        Mean mean;
        mean.add(window);
        return mean.steps() > 0 && kHasty * mean.ms() < *outside;
    };
    // Only those that come before any other: in between, a fast one belongs to a restless program.
    const auto first =
        std::ranges::find_if(windows, [&](const WindowSteps& window) { return !window.steps.empty() && !is_hasty(window); });
    Mean all, others;
    for (auto window = windows.begin(); window != windows.end(); ++window) {
        all.add(*window);
        if (window >= first) others.add(*window);
    }
    const bool nearer = std::abs(others.ms() - *outside) < std::abs(all.ms() - *outside);
    if (kTooFast * all.ms() >= *outside || others.steps() < kLeastSteps || !nearer) return 0;
    std::size_t left_out = 0;
    for (auto window = windows.begin(); window != first; ++window)
        if (!window->steps.empty()) *window = {}, ++left_out;
    return left_out;
}

}  // namespace millrace::diagnose
