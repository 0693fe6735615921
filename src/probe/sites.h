#pragma once
// Where a call was made: the Python stack of the calling thread, read as it lies in memory, without the interpreter's lock; for
// programs without an interpreter the native stack. A stack gets a number once; after that it costs one hash.

#include <cstdint>

#include "probe/lanes.h"

namespace millrace::probe {

bool prepare_sites();

/// Looks for an interpreter in the process, and readies native stacks if there is none. May take locks of the loader: never from
/// a callback.
void find_interpreter();

/// Number of the calling thread's stack; 0 when it could not be told or written.
std::uint32_t site_number(ThreadState& thread);

/// Names what callbacks left by address alone (native stacks). Takes locks of the loader: never from a callback.
void name_native_sites(ThreadState& thread);

}  // namespace millrace::probe
