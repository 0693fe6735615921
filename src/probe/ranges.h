#pragma once
// Device memory that the program holds, so that pointers among the arguments of a kernel can be told from numbers.

#include <cstdint>

namespace millrace::probe {

bool prepare_ranges();
void add_range(std::uint64_t address, std::uint64_t bytes);
/// Returns how many bytes the range had that began there; 0: unknown.
std::uint64_t remove_range(std::uint64_t address);
/// Whether `address` lies in a range; "no" also when the table is being changed right now.
bool in_range(std::uint64_t address);

}  // namespace millrace::probe
