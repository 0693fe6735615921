#pragma once
// A sweep as a person follows it: a few live lines on a terminal, plain lines elsewhere.

#include <mutex>
#include <string>

#include "base/clock.h"
#include "sweep/worker.h"
#include "train/console.h"

namespace millrace::sweep {

/// "trials 120 of 280: 40 complete, 64 running, ...  96 trial-epochs/s  3m left" and, below it, the best so far.
std::string progress_text(const Progress& progress);

class Console {
public:
    /// `detail` means nothing here; a quiet one shows nothing at all.
    explicit Console(train::ConsoleOptions options, const base::Clock& clock = base::SteadyClock::shared());
    ~Console();
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    void show(const Progress& progress);
    /// Removes the live lines.
    void end();

private:
    void draw(const std::string& lines);
    [[nodiscard]] std::string erased() const;

    train::ConsoleOptions options_;
    const base::Clock& clock_;
    std::mutex mutex_;   ///< guards what follows
    std::string lines_;  ///< on the terminal now
    std::chrono::nanoseconds last_{};
};

}  // namespace millrace::sweep
