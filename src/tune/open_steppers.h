#pragma once
// The steppers that are open at a time. As many as fit the memory stay open, so that they can be timed in turns.

#include <memory>
#include <utility>
#include <vector>

#include "tune/stepper.h"

namespace millrace::tune {

class OpenSteppers {
public:
    /// `recipe` and `machine` are borrowed. `pinned` are settings of every stepper unless its own say otherwise: what depends on
    /// the memory that is free, which other steppers take.
    OpenSteppers(const base::Recipe& recipe, Settings pinned, sense::Source* machine)
        : recipe_(recipe), pinned_(std::move(pinned)), machine_(machine) {}

    /// The stepper with these settings, opened where it is not. Where it cannot be, all others are closed and it is tried again.
    base::Result<Stepper*> get(const Settings& settings);
    void close_all() { open_.clear(); }
    /// Adds to what all steppers share from now on, and closes those that are open.
    void pin(const Settings& settings);
    [[nodiscard]] const Settings& pinned() const { return pinned_; }

private:
    const base::Recipe& recipe_;
    Settings pinned_;
    sense::Source* machine_;
    std::vector<std::pair<Settings, std::unique_ptr<Stepper>>> open_;
};

}  // namespace millrace::tune
