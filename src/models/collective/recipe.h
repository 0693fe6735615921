#pragma once
// The recipe keys of the collective model and its presets: debug, phase1, debug-r2, phase1-r2.

#include "models/registry.h"

namespace millrace::models {

Family collective_family();

}  // namespace millrace::models
