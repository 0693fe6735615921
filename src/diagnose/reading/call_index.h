#pragma once
// Calls and the work they started, joined by correlation: what every reader of a trace does once it has both.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

class CallIndex {
public:
    explicit CallIndex(const std::vector<Call>& calls);

    /// Number of a call with that correlation; of `process` when that is not 0, else of any.
    [[nodiscard]] std::optional<std::uint32_t> find(std::uint32_t correlation, std::uint32_t process) const;

private:
    std::vector<std::pair<std::uint64_t, std::uint32_t>> calls_;  ///< (correlation, process), number; sorted
};

/// Tells calls what only the device saw: stream, and of copies and sets how much went from where to where.
void complete_calls(Timeline& timeline, const CallIndex& index);

/// Fills Process::main_thread where it is 0, and has_gpu, from the calls.
void find_main_threads(Timeline& timeline);

/// Puts everything in the order that Timeline promises.
void sort_timeline(Timeline& timeline);

}  // namespace millrace::diagnose
