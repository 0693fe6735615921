#pragma once
// The program's speed outside of windows, and what recording cost it by that.

#include <optional>
#include <span>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

struct Study;

/// The timeline's blocks. What the recorder counts as a step is what returns: several training steps with an evaluation, or one
/// turn of a loop inside of a step. Where windows show that it is a whole multiple or part of a training step, training steps
/// count; where it is neither, the pace is unknown, and such blocks are left out.
std::vector<Block> in_training_steps(const Study& study);

/// What blocks say of a step, by their steps.
struct BlockSpeed {
    double steps = 0, ms = 0;       ///< of all blocks
    double median_ms = 0;           ///< of a step
    std::optional<double> wait_ms;  ///< of a step, for its data, where the program measures that
};
BlockSpeed speed_of(std::span<const Block> blocks);

/// Mean step outside of windows in milliseconds: the median over the steps, since blocks also hold evaluations. Absent where less
/// than record::kLeastUnrecordedSeconds or ...Steps ran unrecorded: too little to tell.
std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded);

/// By what share recording made the run of `process` longer: by what its windows added to their steps, what counting steps
/// outside of them takes, as far as that is known, and `presence_ms`, which CUPTI adds to each of these. `undisturbed_ms` is
/// without it.
std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms, double presence_ms);

}  // namespace millrace::diagnose
