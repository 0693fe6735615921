#pragma once
// Where steps begin and end. Times are the device's: a step lasts from the begin of its first job to the begin of the next step's
// first job, so that steps follow each other without holes and their mean is the program's speed, however far the host runs
// ahead.

#include <optional>
#include <string>
#include <vector>

#include "diagnose/answer/policy.h"
#include "diagnose/program/line.h"
#include "record/step_finder.h"

namespace millrace::diagnose {

/// Of training, or what is none between two of them: an evaluation.
struct Step {
    Time begin = 0, end = 0;
    std::uint32_t first_job = 0, end_job = 0;  ///< in Lane::jobs; end_job is the first of what follows
    bool before_phase = false;                 ///< something that is no step follows: it ends with its last job, end_job - 1
};

using record::StepSource;

struct WindowSteps {
    StepSource source = StepSource::kNone;
    double match = 0;               ///< how well the sequence returns
    std::uint64_t loop = 0;         ///< whose turns they are (record::Turn::loop); 0: it is not known
    bool trains = false;            ///< they have an optimizer, or most have graphs or launches of other threads: autograd's
    std::vector<Step> steps;        ///< steady ones, ascending; neighbours touch unless a phase lies between
    std::vector<Step> evaluations;  ///< stretches between steps that are none
};

/// Where a stack stands among the program's loops.
std::optional<record::StepPlace> place_of(const Timeline& timeline, std::uint32_t stack);

/// `first_window`: the program starts in it, its first steps are start-up.
WindowSteps find_steps(const Timeline& timeline, const Launcher& launcher, const Lane& lane, bool first_window);

}  // namespace millrace::diagnose
