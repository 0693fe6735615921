#pragma once
// The entries of the families that come with the library. Each is defined beside its family's recipe keys.

#include <vector>

#include "models/registry.h"

namespace millrace::models {

std::vector<Family> baseline_families();
Family cnn_family();
Family collective_family();
Family energy_flow_family();
Family k1_family();
Family leak_cnn_family();
Family transformer_family();

}  // namespace millrace::models
