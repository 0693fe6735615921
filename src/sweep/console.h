#pragma once
// A sweep as a person follows it: a few live lines on a terminal, plain lines elsewhere.

#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "sweep/worker.h"
#include "train/console.h"

namespace millrace::sweep {

/// "trials 120 of 280: 40 complete, 64 running, ...  96 trial-epochs/s  3m left" and, below it, the best so far.
std::string progress_text(const Progress& progress);

class Console {
public:
    /// `detail` means nothing here; a quiet one shows nothing at all.
    explicit Console(train::ConsoleOptions options, const base::Clock& clock = base::SteadyClock::shared());

    void show(const Progress& progress);
    /// Removes the live lines.
    void end() { lines_.draw({}); }

private:
    train::ConsoleOptions options_;
    const base::Clock& clock_;
    base::LiveLines lines_;
    std::chrono::nanoseconds last_{};
};

}  // namespace millrace::sweep
