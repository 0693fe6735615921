#pragma once
// Operators that rewrites put in the place of several records (ops/rewrite.h). Such a record does what its parts do one after the
// other, and that is its reference: without a kernel of its own a backend runs the parts. Its slots are what the parts name,
// each view once, but for what only the parts themselves use; they are as many as there are and stand in the order of the parts.

#include <memory>
#include <vector>

#include "ops/backend.h"
#include "ops/op.h"
#include "ops/rewrite.h"

namespace millrace::ops {

struct FusedParams {
    static constexpr int kInner = -1;  ///< in memory of the kernel's own, or absent
    struct Part {
        Record record;              ///< as it was appended
        std::vector<int> operands;  ///< per slot: which of the fused record's it is, or kInner
    };
    /// A slot of the fused record: of which part, and what running all of them does to it.
    struct Slot {
        std::size_t part = 0;
        SlotDef def = {};
        bool unwritten = false;  ///< it may be left as it is
    };
    std::vector<Part> parts;
    std::vector<Slot> slots;
};

/// Null unless it is the record of a fused operator.
const FusedParams* fused_params(const Record& record);
/// The parts of a fused record, or the record itself.
std::vector<const Record*> parts_of(const Record& record);
/// The part that last writes to a slot of a fused record, or the record itself.
const Record& writer_of(const Record& record, int slot);
/// Where its time is counted: that of its last part.
std::optional<Phase> phase_of(const Record& record);

/// The record that does what those do which the match takes.
Record fuse(const OpDef& fused, const Match& match, const Window& window);

/// The parts of a fused record bound to its memory. What is inner has an address that stands for memory, or lies in `memory`.
struct BoundParts {
    explicit BoundParts(const Bound& fused, std::byte* memory = nullptr);
    static std::size_t inner_bytes(const Bound& fused);
    std::vector<Bound> parts;
};

/// The composition, on the backends that need no kernel of its own for it.
void run_parts(const Bound& fused);
KernelResult make_parts(cpu::Context& context, const Bound& fused);

/// Definition of a fused operator, with CUDA's kernel.
OpTraits fused_traits(const char* name, KernelResult (*cuda)(cuda::Context&, const Bound&) = nullptr);

/// From a function that makes a kernel of the parts.
template <KernelResult (*kMake)(cuda::Context&, std::span<const Bound>)>
KernelResult make_from_parts(cuda::Context& context, const Bound& fused) {
    return kMake(context, BoundParts(fused).parts);
}

}  // namespace millrace::ops
