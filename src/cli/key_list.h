#pragma once
#include <string>

#include "base/recipe_schema.h"

namespace millrace::cli {

/// For a terminal: every key with its default and, below, its meaning, type and range, in lines of at most `width` columns.
std::string key_list(const base::Schema& schema, std::size_t width);

}  // namespace millrace::cli
