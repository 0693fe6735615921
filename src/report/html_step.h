#pragma once
// One step under the lens: what the GPU ran, why it waited, what the program did meanwhile, on one axis of time.

#include <string>
#include <string_view>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::report {

/// A figure with lanes. The picture is bounded however many kernels a step has: neighbours of one kind are drawn as one.
std::string html_step(const diagnose::StepView& step, const diagnose::Timeline& timeline, std::string_view id,
                      const std::string& caption);

/// Something of one colour on a lane.
struct LaneItem {
    diagnose::Time begin = 0, end = 0;
    int colour = 0;  ///< an owner's number
    std::string what;
    std::size_t count = 1;
};
/// Neighbours of one colour joined until at most `most` are left, those with the smallest gaps first.
std::vector<LaneItem> joined(std::vector<LaneItem> items, std::size_t most);

}  // namespace millrace::report
