#pragma once
#include <string>

#include "base/result.h"

namespace millrace::io {

/// The text of a recipe file or pipe, at most 1 MiB; base/ parses it. A relative path that is not there is looked for among the
/// recipes that were installed with the program: recipes/NAME.toml.
base::Result<std::string> read_recipe_file(const std::string& path);

}  // namespace millrace::io
