#pragma once
// Recipe keys and profiles of the energy flow model.

#include "models/registry.h"

namespace millrace::models {

Family energy_flow_family();

}  // namespace millrace::models
