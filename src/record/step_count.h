#pragma once
// How many steps a program has made: calls of one kind, each at its site, from the program's begin to its end. Those of windows
// in which the probe counts none are counted by their records, all others by the probe; nothing is put in by its pace. Windows
// tell which sites are steps. What stands at a site that no window has shown, in a loop that is a step's, may be steps or an
// evaluation: where there is more of it than a number may be wrong by, none is told. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "record/probe_reader.h"
#include "record/step_watch.h"
#include "record/window_schedule.h"

namespace millrace::record {

class StepCount {
public:
    /// A call of a window. `counted`: the probe counts calls at sites meanwhile.
    void add(const Record& call, bool counted);
    /// What the probe has counted until now.
    void take(const ProbeReport& report);
    /// A window is over; `before`: of those before it.
    void end_window(std::optional<StepFacts> facts, Sureness before, bool led);
    /// The count may have missed calls; `why`: what the summary prints after "cannot tell how many steps:".
    void doubt(std::string why);

    /// As far as it is known.
    [[nodiscard]] double steps() const;
    /// Why steps() may be off by more than 2 %; empty where it is not. `watch` knows the sites.
    [[nodiscard]] std::string doubt(const StepWatch& watch) const;
    /// A site at which calls are made now, that no window has shown and that may be a step's, which is any as long as none has
    /// shown training: a window would tell; 0: none.
    [[nodiscard]] std::uint32_t unseen_site(const StepWatch& watch) const;

private:
    using Place = std::pair<CallKind, std::uint32_t>;
    struct StepSite {
        double per_step = 0;
        std::size_t depth = 0;  ///< StepFacts::pulse_depth
    };
    void learn(const StepFacts& facts, bool surer);
    [[nodiscard]] bool may_be_step(std::uint32_t site, const StepWatch& watch) const;

    std::map<Place, std::uint64_t> recorded_, counted_;
    std::map<CallKind, std::uint64_t> recorded_of_kind_, unplaced_;
    std::set<Place> shown_, showing_;  ///< in windows that told something; in the open one
    std::set<Place> evaluated_;        ///< that made steps in windows without training
    bool trains_ = false;              ///< a window has shown training
    CallKind kind_ = CallKind::kOther;
    std::map<std::uint32_t, StepSite> steps_at_;
    std::set<std::uint32_t> active_;  ///< sites at which calls were counted since the last look
    double per_step_ = 0;             ///< where no site is counted
    std::uint64_t pulses_ = 0;
    std::string why_;
};

}  // namespace millrace::record
