#pragma once
// Records with a condition (ops::Record::condition), on backends whose memory the host reads.

#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace millrace::ops {

/// Takes neighbours with one condition together in a kernel that asks it. `kernels` holds one per record.
void gather_regions(std::span<const Bound> records, std::vector<std::unique_ptr<Kernel>>& kernels);

}  // namespace millrace::ops
