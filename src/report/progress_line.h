#pragma once
// How far a long read has come, on one line of a terminal that is gone when the read ends.

#include <chrono>
#include <string>

namespace millrace::report {

class ProgressLine {
public:
    /// Shows nothing when standard error is no terminal, nor before a read has taken half a second.
    explicit ProgressLine(std::string what);
    ~ProgressLine();  ///< takes the line away
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(double share);  ///< 0 to 1; cheap to call often

private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    bool wanted_, shown_ = false;
    Clock::time_point next_;
};

/// The line itself, no wider than `width`.
std::string progress_text(const std::string& what, double share, std::size_t width, bool utf8);

}  // namespace millrace::report
