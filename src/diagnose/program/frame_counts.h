#pragma once
// Which line of the user's has most of some launches or samples under it.

#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>

#include "diagnose/timeline/frames.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// A frame of the user's own code and the stack it stands in.
struct Spot {
    const Stack* stack = nullptr;
    std::size_t at = 0;

    const Frame& frame() const { return (*stack)[at]; }
};

using Function = std::tuple<std::string_view, std::string_view>;
using Line = std::tuple<std::string_view, std::string_view, int>;
inline Function function_of(const Frame& frame) { return {frame.file, frame.function}; }
inline Line line_of(const Frame& frame) { return {frame.file, frame.function, frame.line}; }
inline bool is_users(const Frame& frame) { return !frame.native && !is_library(frame.file); }

/// How many fall under a frame, and how far in it lies where it was first seen.
struct Under {
    std::size_t count = 0, depth = 0;
    Spot spot;
    const Stack* last = nullptr;  ///< that was counted: functions that call themselves stand in it twice

    void add(const Stack& stack, std::size_t at, std::size_t times);
};

/// Frames of stacks, each of which is added once with how often it was seen.
struct FrameCounts {
    std::map<Line, Under> lines;
    std::map<Function, Under> functions;

    void add(const Stack& stack, std::size_t at, std::size_t times);
    /// The innermost line with at least so many; null: none has.
    const Under* line(double least) const;
    const Under* function(double least) const;
    /// The line of a function that has most.
    const Under* busiest(const Under& function) const;
};

}  // namespace millrace::diagnose
