#include "tune/open_steppers.h"

namespace millrace::tune {

base::Result<Stepper*> OpenSteppers::get(const Settings& settings) {
    for (const auto& [of, stepper] : open_)
        if (of == settings) return stepper.get();
    const Settings all = joined(pinned_, settings);
    auto stepper = Stepper::open(recipe_, all, machine_);
    if (!stepper.ok() && !open_.empty()) {
        open_.clear();
        stepper = Stepper::open(recipe_, all, machine_);
    }
    if (!stepper.ok()) return stepper.error();
    open_.emplace_back(settings, std::move(stepper).value());
    return open_.back().second.get();
}

void OpenSteppers::pin(const Settings& settings) {
    open_.clear();
    pinned_ = joined(std::move(pinned_), settings);
}

}  // namespace millrace::tune
