#pragma once
// What the doctor says on a terminal: how busy the GPU was, where the rest of a step went, what to change first.

#include <string>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

struct TextOptions {
    bool colour = false;
    bool utf8 = true;  ///< bars of blocks; else of '#'
    bool all = false;  ///< every finding with evidence and stack, every remark; else what fits
    std::size_t width = 80, height = 24;
};

/// Lines no wider than `width`; without `all` at most `height` - 1 of them, so that the prompt fits too.
std::string diagnosis_text(const diagnose::Diagnosis& diagnosis, const TextOptions& options);

/// One word after the other in lines of at most `width` columns; words that are longer are cut into pieces. At least one line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace millrace::report
