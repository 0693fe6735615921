#pragma once
// The pass over a program's records before its memory is planned: rewrites of the backend put fused records in the place of
// others, and lifetimes follow from what is left.

#include <vector>

#include "ops/backend.h"
#include "tape/buffer.h"

namespace millrace::tape {

/// Replaces what the backend's rewrites take (ops/rewrite.h), at each record the first that fits; none crosses the border of a
/// section or of a region. `buffers` are the program's own.
void rewrite_records(const ops::Backend& backend, const std::vector<Buffer>& buffers, std::vector<ops::Record>& records,
                     std::vector<ops::Section>& sections);

/// Sets the first and last record of every buffer that the records name.
void set_lifetimes(const std::vector<ops::Record>& records, const std::vector<ops::Section>& sections,
                   std::vector<Buffer>& buffers);

}  // namespace millrace::tape
