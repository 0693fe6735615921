#pragma once
// What kernels leave beside the gradients they write: sums of squares, so that the norm of all gradients need not read them
// again, and which rows have a gradient, so that the update need not read zeros.

#include <vector>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// A byte for every 2^shift neighbouring elements of a member's gradient: 1 where the kernel wrote them, 0 where they are zeros.
struct WrittenRows {
    DeviceTable flags;  ///< [K][count / K >> shift]; null: the kernel writes all rows
    int shift = 0;
    bool skip_zeros = false;  ///< the kernel leaves rows without a gradient as they are
};

/// Of the records prepared so far (Context::squares): the values that a record gave a gradient have these sums.
struct GradientSquares {
    tensor::Operand gradient;  ///< f32, each member's elements are neighbours
    DeviceTable sums;          ///< [K][parts]
    int parts = 0;
    std::size_t made = 0;  ///< by this record
    WrittenRows rows = {};
};

/// Where a tensor of all members begins within a member of an arena; -1: it is none of its tensors, or not of whole quads.
std::int64_t place_in(const tensor::Operand& tensor, const tensor::Operand& arena);

/// Whether the norm uses sums of squares of `gradient`: not in deterministic runs, whose sums keep their order, not in a region,
/// which may be left out, and not for a gradient whose elements are no neighbours.
bool leaves_squares(const Context& c, const tensor::Operand& gradient);
/// Where the kernel under preparation leaves the sums of squares of `gradient`, which it writes as a whole: a table [K][parts]
/// that it fills in every run and holds. Empty where the norm does not use them.
base::Result<DeviceTable> leave_squares(Context& c, const tensor::Operand& gradient, int parts);
/// Adds flags of written rows to the sums that leave_squares has just returned. Null where there are none or a quad may lie in
/// two rows. When the kernel runs, it looks at skip_zeros: set, it writes all flags, and only rows with a gradient.
base::Result<std::shared_ptr<GradientSquares>> leave_rows(Context& c, const DeviceTable& sums);
/// For the update of the arena `grads` under preparation, which looks at the flags: the largest gradient whose zeros nothing else
/// reads; its kernel skips them from now on. Null: there is none.
std::shared_ptr<const GradientSquares> skip_zeros(Context& c, const tensor::Operand& grads);
/// Those of gradients that no record has written to since, up to the one under preparation.
std::vector<std::shared_ptr<GradientSquares>> current_squares(const Context& c);

}  // namespace millrace::ops::cuda
