#pragma once
// `millrace data build-leak`: the family's data from recordings in class folders.

#include "data/command.h"

namespace millrace::models {

data::DataCommand build_leak_command();
data::DataCommand pack_command();

}  // namespace millrace::models
