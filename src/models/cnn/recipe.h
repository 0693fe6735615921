#pragma once
// The recipe keys of the image network.

#include "models/registry.h"

namespace millrace::models {

Family cnn_family();

}  // namespace millrace::models
