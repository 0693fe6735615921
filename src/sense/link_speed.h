#pragma once
// How fast the link between host and GPU is by its specification.

#include <optional>

namespace millrace::sense {

/// Bytes/s in one direction after line coding, before the headers of packets: 63 GB/s for generation 5 with 16 lanes. Absent for
/// generations and widths that do not exist.
std::optional<double> pcie_bytes_per_second(unsigned generation, unsigned lanes);

}  // namespace millrace::sense
