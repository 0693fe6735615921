#pragma once
// Arguments of launched kernels: pointers into device memory, and a hash of everything else.

#include <cstddef>
#include <cstdint>

#include "probe/cupti_library.h"
#include "probe/lanes.h"

namespace millrace::probe {

bool prepare_arguments();

/// Writes the arguments of the launch `correlation`; `function` is a handle of the driver, `name` the kernel's,
/// `arguments` an array of pointers.
void write_arguments(ThreadState& thread, const Cupti& cupti, std::uint64_t function, const char* name, const void* arguments,
                     std::uint32_t correlation);

/// Hash of what an upload reads from host memory; of large ones 64 parts at equal distances, the first and the last
/// among them. 0: could not be read.
std::uint64_t content_hash(std::uint64_t address, std::uint64_t bytes);

}  // namespace millrace::probe
