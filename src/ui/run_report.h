#pragma once
// report.html: a run in one file that needs no network, with the curves of the live page.

#include <string>

#include "io/held_folder.h"

namespace millrace::ui {

/// The page of the run in `folder`: curves, epochs, pictures, warnings, the machine, the recipe.
base::Result<std::string> run_report(const io::Path& folder);

/// Writes it into the run's folder. Replaces one that is there.
base::Status write_run_report(const io::Path& folder);

/// Base 64 with its padding.
std::string base64(std::string_view bytes);
/// The bytes that hexadecimal digits stand for.
std::string bytes_of_digits(std::string_view digits);

}  // namespace millrace::ui
