#pragma once
// Functions that libraries of the program take from CUPTI, led through the probe.

namespace millrace::probe {

/// Makes loaded libraries that need CUPTI call `replacement` for the function `name`; those that look functions up by
/// themselves (dlsym) are not reached. May be called again when more libraries were loaded. Returns how many places were changed.
unsigned replace_import(const char* name, void* replacement);

}  // namespace millrace::probe
