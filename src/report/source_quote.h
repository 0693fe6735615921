#pragma once
// A few lines of the program that was diagnosed, when its source is still where the recording says.

#include <string>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::report {

struct SourceLine {
    int number = 0;
    std::string text;
    bool hit = false;  ///< the line that was asked for
};

/// The line with up to `around` lines before and behind it; nothing when the file is no readable source of that length. A
/// recording may name any file: only names of source code are opened, and of a line no more than 200 bytes are kept.
std::vector<SourceLine> quote_source(const diagnose::Frame& where, int around);

}  // namespace millrace::report
