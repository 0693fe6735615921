#pragma once
// Pulses (calls that were counted and timed outside of windows) as blocks of whole steps: the speed of a program that nobody
// records. Blocks are long, because neighbouring steps resemble each other.

#include <cstdint>
#include <optional>

#include "record/trace_file.h"

namespace millrace::record {

class PulseBlocks {
public:
    explicit PulseBlocks(std::uint32_t pid) : pid_(pid) {}

    /// A pulse at `time`, the `number`th of its call; a number left out closes what was open. Gives a block when one is full: at
    /// least half a second of whole steps.
    std::optional<TraceBlock> add(std::uint64_t time, std::uint64_t number);
    /// Counting stops here (a window, the end) or is about another call from now on; a rest of ten steps or more is a block, too.
    std::optional<TraceBlock> close();
    /// How many calls make a step from now on; closes first if that is new. 0: unknown, pulses are passed over.
    std::optional<TraceBlock> set_calls_per_step(double calls);

    [[nodiscard]] double step_ns() const { return step_ns_; }  ///< of the newest block; 0 before the first

private:
    std::optional<TraceBlock> finish();

    const std::uint32_t pid_;
    double calls_per_step_ = 0;
    std::uint64_t first_time_ = 0, first_number_ = 0;  ///< of the open block
    std::uint64_t last_time_ = 0, last_number_ = 0;    ///< the newest pulse that ends a whole step
    std::uint64_t newest_ = 0, newest_number_ = 0;
    bool open_ = false;
    double step_ns_ = 0;
};

}  // namespace millrace::record
