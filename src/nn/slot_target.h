#pragma once
// Fills an output slot of a record from a gradient target: the view, and the bit that says whether to add.

#include "ops/op.h"
#include "tape/builder.h"

namespace millrace::nn {

inline void write_to(ops::Record& record, int slot, const tape::Builder::Target& target) {
    record.slots[static_cast<std::size_t>(slot)] = target.view;
    if (target.accumulate) record.accumulate |= 1u << slot;
}

}  // namespace millrace::nn
