#pragma once
// Sections of the doctor's page.

#include <string>
#include <string_view>
#include <vector>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::report {

/// The findings as cards: what happens, in which line (quoted where its source can be read), what to do.
std::string html_findings(const diagnose::Diagnosis& diagnosis);

/// One step under the lens: what the GPU ran, why it waited, what the program did meanwhile, on one axis of time. The picture is
/// bounded however many kernels a step has: neighbours of one kind are drawn as one.
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

/// What the machine did over the run: curves of GPU and CPU, memory and power. Empty when nothing was sampled. Bounded however
/// long the run was. Where a reading is absent the curves have gaps.
std::string html_curves(const diagnose::Timeline& timeline);

/// A line of the program that was diagnosed.
struct SourceLine {
    int number = 0;
    std::string text;
    bool hit = false;  ///< the line that was asked for
};

/// The line with up to `around` lines before and behind it; nothing when the file is no readable source of that length. A
/// recording may name any file: only names of source code are opened, and of a line no more than 200 bytes are kept.
std::vector<SourceLine> quote_source(const diagnose::Frame& where, int around);

}  // namespace millrace::report
