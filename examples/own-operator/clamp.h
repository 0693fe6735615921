#pragma once
// An operator of one's own, in one folder: contract, definition, reference and CPU kernel, and a layer that uses it.
// docs/own-operator.md walks through it.

#include "tape/builder.h"

namespace own {

/// clamp_forward. y = min(max(x, low), high). x, y real [K,G,R,C].
/// clamp_backward. dx (+) = dy where low < x < high, else 0.
struct ClampParams {
    float low = -1, high = 1;
};
namespace clamp_forward {
enum Slot { x, y, slots };
extern const millrace::ops::OpDef kDef;
}  // namespace clamp_forward
namespace clamp_backward {
enum Slot { dy, x, dx, slots };
extern const millrace::ops::OpDef kDef;
}  // namespace clamp_backward

/// The layer: appends the record, and registers what to append in the backward pass.
millrace::tape::Value clamp(millrace::tape::Builder& builder, const millrace::tape::Value& x, ClampParams params,
                            const std::string& name);

}  // namespace own
