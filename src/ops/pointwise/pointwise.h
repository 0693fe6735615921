#pragma once
// Element-wise operators: constants, copies, sums, activations. Conventions: ops/op.h.

#include "ops/activation.h"
#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// fill. out = value, for real, stat and i32.
struct FillParams { double value = 0; };
namespace fill { enum Slot { out, slots }; extern const OpDef kDef; }

/// copy. out = in, converting between f64, f32, bf16, f16, i32; shapes equal.
struct CopyParams {};
namespace copy { enum Slot { in, out, slots }; extern const OpDef kDef; }

/// add. out (+) = a + b (b optional). All real, shapes equal.
struct AddParams {};
namespace add { enum Slot { a, b, out, slots }; extern const OpDef kDef; }

/// pointwise_forward: y = dropout(act(x)). pointwise_backward: dx (+) = dy * mask/(1-p) * act'(x). x is the saved input.
struct PointwiseParams { Activation activation = Activation::none; float dropout = 0; std::uint32_t op_number = 0; };
namespace pointwise_forward { enum Slot { x, state, y, slots }; extern const OpDef kDef; }
namespace pointwise_backward { enum Slot { dy, x, state, dx, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
