#pragma once
// Lines of calls in stacks that only say where functions begin, as those of PyTorch's profiler do. Who was called is the next
// frame inwards; when the function's source calls that name on one line only, that is the line.

#include <string>
#include <string_view>
#include <vector>

#include "diagnose/reading/python_source.h"
#include "diagnose/reading/source_file.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// The name by which source code calls what the frame is: "item" of "<built-in method item of Tensor object>". Empty where no
/// name stands in the source: modules, operators, lambdas, and what loops, operators and objects call by themselves (__next__).
std::string_view called_name(const Frame& frame);

/// The line on which the frame's function makes the call that leads to the frames inside it; 0 when the source does not tell.
int call_line(const Stack& stack, std::size_t frame, const PythonSource& source);

struct CallLines {
    bool found = false;                ///< lines of some frames
    bool kept = false;                 ///< some frames of the user's functions have the line where the function begins
    std::vector<std::string> changed;  ///< files that were not used because they are newer than the trace
};
/// Gives frames of the user's own code their lines, each by what it calls in its own stack, and the path of the source that
/// tells. Opens at most 128 files. `made`: when the trace was, in nanoseconds since 1970.
CallLines find_call_lines(std::vector<Stack>& stacks, const FindSources& find, std::optional<std::int64_t> made = std::nullopt);

}  // namespace millrace::diagnose
