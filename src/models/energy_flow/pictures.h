#pragma once
// The pictures of a sample: its surface, and the paths of its flows (models/capabilities.h).

#include <memory>

#include "models/capabilities.h"

namespace millrace::models {

/// `model` is an EnergyFlow and outlives the pictures.
std::unique_ptr<Pictures> flow_pictures(Model& model);

}  // namespace millrace::models
