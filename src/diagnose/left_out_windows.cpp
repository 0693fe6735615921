#include "diagnose/left_out_windows.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "diagnose/pace.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kLeastPartSteps = 3;  ///< a period is found when it came so often (record/periodicity.h)
constexpr double kKnownShare = 0.95;        ///< of a part's jobs that the step has, too; the rest is logging, or another thread's

using Kinds = std::unordered_set<std::uint64_t>;

/// Grids vary with batches, names do not.
std::uint64_t kind_of(const Timeline& timeline, std::uint32_t work) {
    return static_cast<std::uint64_t>(timeline.work[work].kind) << 32 | timeline.work[work].name;
}

Kinds kinds_of(const Timeline& timeline, const Lane& lane, const std::vector<Step>& steps) {
    Kinds kinds;
    for (const Step& step : steps)
        for (std::uint32_t i = step.first_job; i < step.end_job; ++i) {
            kinds.insert(kind_of(timeline, lane.jobs[i].first_work));
            // A step that became one graph has all of its kinds in one job.
            for (const std::uint32_t work : lane.jobs[i].more_work) kinds.insert(kind_of(timeline, work));
        }
    return kinds;
}

Time time_in(const WindowSteps& window) {
    Time sum = 0;
    if (window.source != StepSource::kWindow)
        for (const Step& step : window.steps) sum += step.end - step.begin;
    return sum;
}

std::size_t median_jobs(const std::vector<Step>& steps) {
    std::vector<std::size_t> jobs;
    jobs.reserve(steps.size());
    for (const Step& step : steps) jobs.push_back(step.end_job - step.first_job);
    const auto middle = jobs.begin() + static_cast<std::ptrdiff_t>(jobs.size() / 2);
    std::nth_element(jobs.begin(), middle, jobs.end());
    return *middle;
}

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

std::size_t leave_out_parts(const Timeline& timeline, std::span<const Lane> lanes, std::vector<WindowSteps>& windows) {
    const auto best = std::max_element(windows.begin(), windows.end(),
                                       [](const WindowSteps& a, const WindowSteps& b) { return time_in(a) < time_in(b); });
    if (best == windows.end() || time_in(*best) <= 0) return 0;
    const Kinds whole = kinds_of(timeline, lanes[static_cast<std::size_t>(best - windows.begin())], best->steps);
    const std::size_t jobs = median_jobs(best->steps);
    std::size_t parts = 0;
    for (std::size_t i = 0; i < windows.size(); ++i) {
        const std::vector<Job>& all = lanes[i].jobs;
        if (windows[i].steps.empty() || all.size() >= kLeastPartSteps * jobs) continue;
        if (windows[i].source == StepSource::kRanges) continue;  // the program says what its steps are
        const auto known = std::count_if(all.begin(), all.end(),
                                         [&](const Job& job) { return whole.contains(kind_of(timeline, job.first_work)); });
        if (static_cast<double>(known) < kKnownShare * static_cast<double>(all.size())) continue;
        const bool loops = windows[i].source != StepSource::kWindow;
        if (loops && 2 * kinds_of(timeline, lanes[i], windows[i].steps).size() >= whole.size()) continue;
        windows[i] = {};
        ++parts;
    }
    return parts;
}

std::size_t leave_out_fast(std::span<const Block> unrecorded, std::vector<WindowSteps>& windows) {
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

std::size_t leave_out_shapeless(std::vector<WindowSteps>& windows) {
    const auto returns = [](const WindowSteps& window) { return !window.steps.empty() && window.source != StepSource::kWindow; };
    if (std::none_of(windows.begin(), windows.end(), returns)) return 0;
    std::size_t dropped = 0;
    for (WindowSteps& window : windows)
        if (window.source == StepSource::kWindow) window = {}, ++dropped;
    return dropped;
}

}  // namespace millrace::diagnose
