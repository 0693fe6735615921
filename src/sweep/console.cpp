#include "sweep/console.h"

#include <fmt/format.h>

#include <cmath>

#include "base/units.h"

namespace millrace::sweep {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};

}  // namespace

std::string progress_text(const Progress& progress) {
    std::string text = fmt::format("trials {} of {}: {} complete, {} running", progress.started, progress.wanted,
                                   progress.complete, progress.running);
    if (progress.paused > 0) text += fmt::format(", {} paused", progress.paused);
    if (progress.pruned > 0) text += fmt::format(", {} pruned", progress.pruned);
    if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
    if (progress.finished && !progress.is_final)
        text += fmt::format("; none is complete, so trial {}, the best, trains to its end", *progress.finished);
    if (progress.is_final) text += "; finalists are trained again";
    text += fmt::format("  {} of {} lanes", progress.busy_lanes, progress.lanes);
    if (progress.times.total > 0)
        text += fmt::format("  {:.3g} trial-epochs/s", static_cast<double>(progress.trial_epochs) / progress.times.total);
    if (progress.seconds_left >= 0 && progress.seconds_left < 1e9)
        text += fmt::format("  {} left", base::print_duration(std::chrono::seconds(std::llround(progress.seconds_left))));
    if (!progress.best.empty()) text += "\n  best " + progress.best;
    return text;
}

Console::Console(train::ConsoleOptions options, const base::Clock& clock)
    : options_(options), clock_(clock), lines_(options.live), last_(clock.now()) {}

void Console::show(const Progress& progress) {
    if (options_.quiet) return;
    const auto interval = options_.live ? std::chrono::nanoseconds{kLiveInterval} : options_.plain_interval;
    if (clock_.now() - last_ < interval) return;
    last_ = clock_.now();
    if (options_.live) return lines_.draw(progress_text(progress));
    std::fputs((progress_text(progress) + "\n").c_str(), options_.out);
    std::fflush(options_.out);
}

}  // namespace millrace::sweep
