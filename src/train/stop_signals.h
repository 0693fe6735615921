#pragma once
// SIGINT, SIGTERM and SIGHUP as a wish to stop, not as an end in the middle of a file.

#include <atomic>

namespace millrace::train {

/// Catches SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP for as long as it lives. The first one is remembered for the
/// loop to look at; the second one ends the process at once with 128 + its number. SIGPIPE is ignored meanwhile: whoever read our
/// output may leave, the run goes on. At most one object at a time.
class StopSignals {
public:
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    /// 0 until a signal came, then its number.
    [[nodiscard]] const std::atomic<int>& caught() const;
};

}  // namespace millrace::train
