#include "diagnose/hasty_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnose/findings.h"
#include "diagnose/overhead.h"
#include "diagnose/study.h"

namespace millrace::diagnose {
namespace {

constexpr double kHasty = 1.25;                   ///< times a window's step, outside of windows
constexpr double kTooFast = 1.1, kSlower = 1.15;  ///< the same of all windows together: for leaving some out, for a remark
constexpr std::size_t kLeastSteps = 10;           ///< as in the shortest usual window (record/window_schedule.h)
constexpr std::size_t kLeastSamples = 20;         ///< of the main thread outside of windows
constexpr double kMostOfIt = 0.5;                 ///< of the difference, that a line has to explain to be named

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

/// Shares of the main thread's time by line, and how many samples they rest on.
struct Shares {
    std::map<std::uint32_t, double> by_place;
    std::map<std::uint32_t, double> loading;  ///< of these, inside of a loader
    std::size_t samples = 0;

    void add(const Study& study, const Sample& sample) {
        const std::uint32_t place = study.places.of_stack(sample.stack);
        ++by_place[place];
        if (std::ranges::any_of(study.timeline.stacks[sample.stack], is_loader)) ++loading[place];
        ++samples;
    }
    double of(std::uint32_t place) const {
        const auto found = by_place.find(place);
        return found == by_place.end() || samples == 0 ? 0 : found->second / static_cast<double>(samples);
    }
};

bool is_inside(const Study& study, Time time) {
    return std::ranges::any_of(study.steps, [&](const WindowSteps& window) {
        return !window.steps.empty() && window.steps.front().begin <= time && time < window.steps.back().end;
    });
}

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

std::optional<std::string> slower_outside(const Study& study, std::span<const Finding> findings) {
    const auto pace = study.pace();
    if (!pace || *pace <= kSlower) return std::nullopt;
    const double inside_ms = study.recorded_ms, outside_ms = *pace * inside_ms, more_ms = outside_ms - inside_ms;
    Shares inside, outside;
    auto block = study.blocks.begin();
    for (const Sample& sample : study.timeline.samples) {
        if (sample.process != study.launcher.process || sample.thread != study.launcher.main_thread) continue;
        while (block != study.blocks.end() && block->end <= sample.time) ++block;
        if (block != study.blocks.end() && block->begin <= sample.time)
            outside.add(study, sample);
        else if (is_inside(study, sample.time))
            inside.add(study, sample);
    }
    std::string where;
    bool found = false;  // the windows show it, and too little of it
    if (outside.samples >= kLeastSamples) {
        const auto grown = [&](std::uint32_t place) { return outside.of(place) * outside_ms - inside.of(place) * inside_ms; };
        std::uint32_t most = kNoPlace;
        for (const auto& [place, count] : outside.by_place)
            if (place != kNoPlace && (most == kNoPlace || grown(place) > grown(most))) most = place;
        if (most != kNoPlace && grown(most) >= kMostOfIt * more_ms) {
            const bool loads = 2 * outside.loading[most] > outside.by_place[most];
            const Frame& frame = study.places.frame(most);
            found = std::ranges::any_of(findings, [&](const Finding& finding) {
                return finding.where && finding.where->file == frame.file && finding.where->line == frame.line;
            });
            where = fmt::format(", most of it at {}{}", name_of_place(study, most), loads ? ", where it waits for data" : "");
        }
    }
    const char* const shown = found ? "the windows show too little of it" : "the windows do not show it";
    const char* const advice = study.timeline.presence_share < 1
                                   ? "record with --every 500 for later ones, as CUPTI left after these"
                                   : "a longer recording has later ones";
    return fmt::format("outside of the windows a step takes {:.1f} ms more than inside{}: {}; {}", more_ms, where, shown, advice);
}

}  // namespace millrace::diagnose
