#pragma once
// Whose file a Python file is. Environments and folders of users may have the name of a package (/opt/torch/.venv).

#include <string_view>

namespace millrace::record {

/// Whether it lies in an installed package, such as "torch/optim/", or below any folder of that name where nothing says that it
/// is installed: traces shorten paths, developers install from sources.
bool is_in(std::string_view file, std::string_view package);
bool is_torch(std::string_view file);

}  // namespace millrace::record
