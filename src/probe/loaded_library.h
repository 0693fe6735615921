#pragma once

namespace millrace::probe {

/// Handle of the library the process has loaded, from wherever, whose file name begins with `name`; null: none. Takes locks of
/// the loader: never from a callback.
void* loaded_library(const char* name);

}  // namespace millrace::probe
