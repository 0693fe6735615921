#pragma once
// What to do about a finding, in the words of the framework that the program uses.

#include "diagnose/program/line.h"
#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {

/// A row of the table.
enum class Topic : std::uint8_t {
    kRead,
    kReadTogether,  ///< many values that one line reads in each step
    kLaunches,
    kPageable,
    kFlush,   ///< memory is given back and taken again
    kShapes,  ///< memory is taken without being given back
    kPrecision,
    kMemory,
    kPythonWork,
    kConstant,  ///< computed in every step
    kNoWorkers,
    kFewWorkers,
    kPacking,
    kIdleWorkers,
    kEvaluation,  ///< launches little at a time
};

const char* advice_for(Topic topic, Framework framework);

/// By the frames under which `launcher` launches, then those that its main thread was seen in, then names of kernels.
Framework framework_of(const Timeline& timeline, const Launcher& launcher);

}  // namespace millrace::diagnose
