#pragma once
// What short trainings of a recipe are given, whatever they measure.

#include <chrono>
#include <functional>

#include "tune/candidates.h"

namespace millrace::tune {

struct TrainingRequest {
    const base::Recipe& recipe;
    Settings settings;        ///< with which it trains
    Facts facts;              ///< with these settings
    double step_seconds = 0;  ///< of a step of the recipe
    std::chrono::nanoseconds deadline{};
    std::function<void()> progress;
};

}  // namespace millrace::tune
