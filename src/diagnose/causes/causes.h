#pragma once
// Whose the time of a step was, and which causes are told of. Rules name what may be to blame, with a cure; here they are weighed
// against each other: the best first, the others by what they still return once those before them are cured (launching, which hides nearly all
// other work, excepted). So no second cure is advised that returns nothing.

#include <functional>
#include <string>
#include <vector>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/replay/cures.h"

namespace millrace::diagnose {

/// How much of the host's time a cause claims. Where two cures close the same gap, the more specific one has it.
enum class Breadth : std::uint8_t {
    kCall,      ///< certain calls or jobs
    kWork,      ///< work of the host in certain lines
    kRest,      ///< all such work together, where no line is to blame by itself
    kLaunches,  ///< the way to every launch
};

/// What a cause costs, given the cures of those before it.
struct Judgement {
    double lost_ms = 0;
    double before_ms = 0,
           after_ms = 0;             ///< the step without and with its cure; of several that hide each other, with all of theirs
    std::vector<const Site*> sites;  ///< of waits that go together, most time first
};

struct Cause {
    Kind kind = Kind::kHostSync;
    Breadth breadth = Breadth::kCall;
    double threshold_ms = 0;  ///< what returns less is nothing to tell of
    double unseen_ms = 0;     ///< that its cure returns besides: of a step outside of windows
    Cure cure;
    const Site* site = nullptr;                        ///< of waits: those that hide each other are one finding
    std::function<Finding(const Judgement&)> finding;  ///< in words
};

struct Choice {
    std::vector<Finding> findings;
    std::vector<std::string> gone;   ///< "launch-bound (0.93 ms)": causes that return nothing once the findings are cured
    std::vector<const Cure*> cures;  ///< of the findings, among the causes
};

Choice choose(const Study& study, const std::vector<Cause>& causes);

/// Each moment of a step has one owner. Busy moments belong to what ran; idle ones to the cause whose cure closes them in the
/// replay, asked in the order of how specific causes are, so that the gap after a blocking call belongs to that call and not to
/// the host work that fills it. Fills in breakdowns, how busy the GPU was, the step of median length and the longest one.
void divide_steps(const Study& study, const Roles& roles, Diagnosis& diagnosis);

}  // namespace millrace::diagnose
