#pragma once
#include "models/registry.h"

namespace millrace::models {

Family leak_cnn_family();

}  // namespace millrace::models
