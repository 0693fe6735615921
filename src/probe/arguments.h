#pragma once
// Arguments of launched kernels: pointers into device memory, and a hash of everything else. Pointers are told from numbers by
// the device memory that the program holds.

#include <cstddef>
#include <cstdint>

#include "probe/calls.h"
#include "probe/cupti_library.h"
#include "probe/lanes.h"

namespace millrace::probe {

bool prepare_ranges();
void add_range(std::uint64_t address, std::uint64_t bytes);
/// Returns how many bytes the range had that began there; 0: unknown.
std::uint64_t remove_range(std::uint64_t address);
/// Whether `address` lies in a range; "no" also when the table is being changed right now.
bool in_range(std::uint64_t address);

bool prepare_arguments();

/// Writes the arguments of the launch `correlation`, as a call of the driver has them; `name` is the kernel's. The mapping's
/// state counts what became of them.
void write_arguments(ThreadState& thread, const Cupti& cupti, const CallFacts& launch, const char* name,
                     std::uint32_t correlation);

/// Hash of what an upload reads from host memory; of large ones 64 parts at equal distances, the first and the last
/// among them. 0: could not be read.
std::uint64_t content_hash(std::uint64_t address, std::uint64_t bytes);

}  // namespace millrace::probe
