#pragma once
// What a sweep prints: while it goes on a few live lines on a terminal, plain lines elsewhere, and at its end what came of it.

#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "sweep/run.h"
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

/// For people: several lines.
std::string report_text(const StudyFile& study, const RunReport& report);
std::string report_json(const StudyFile& study, const RunReport& report);
/// How to train the best configuration again.
std::string best_command(const RunReport& report);

}  // namespace millrace::sweep
