#pragma once
// `millrace data show`: what lies at a path, as training would read it.

#include "data/command.h"

namespace millrace::data {

DataCommand show_command();

}  // namespace millrace::data
