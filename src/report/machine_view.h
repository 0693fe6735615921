#pragma once
// The machine on one screen, as text: pure functions from what is known and the size of the terminal to lines. What is not known
// is shown as "-".

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "sense/machine.h"

namespace millrace::report {

/// The newest values of what is drawn as a sparkline.
class ViewHistory {
public:
    using Values = std::deque<std::optional<double>>;
    struct Gpu {
        Values utilization, sm_active;
    };

    void add(const sense::Sample& sample);
    [[nodiscard]] const Values& cpu() const { return cpu_; }
    [[nodiscard]] const std::vector<Gpu>& gpus() const { return gpus_; }

private:
    Values cpu_;
    std::vector<Gpu> gpus_;
};

struct ViewState {
    sense::MachineFacts facts;
    sense::Sample newest;
    ViewHistory history;
    std::chrono::nanoseconds interval{}, elapsed{};
    std::optional<std::chrono::nanoseconds> left;  ///< until --duration is over
    std::uint64_t samples = 0, missed = 0;
};

struct ViewSize {
    int width = 80, height = 24;
    bool utf8 = true, colour = false;
};

/// At most size.height lines of at most size.width columns. Detail goes first where room is short; what still does not fit is
/// counted in the last line.
std::vector<std::string> machine_view(const ViewState& state, const ViewSize& size);

/// The newest `width` values, one character each; 0..100 from bottom to top, a blank where nothing is known.
std::string sparkline(const ViewHistory::Values& values, std::size_t width, bool utf8);

/// "[####----]" of `width` columns in all; "[   -    ]" when the share (0..1) is not known.
std::string bar(const std::optional<double>& share, std::size_t width, bool utf8);

}  // namespace millrace::report
