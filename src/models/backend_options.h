#pragma once
// What a recipe says about the backend of a model.

#include "base/recipe.h"
#include "ops/backend.h"
#include "tape/buffer.h"

namespace millrace::models {

/// `precision`: the one chosen. tf32 is set where it has an effect: on cuda, in f32, unless kernels are pinned.
inline ops::BackendOptions backend_options(const base::Recipe& recipe, ops::DeviceKind device, tape::Precision precision) {
    ops::BackendOptions options;
    options.deterministic = recipe.boolean("deterministic");
    options.threads = static_cast<int>(recipe.integer("threads"));
    options.tf32 = recipe.text("train.f32") == "tf32" && device == ops::DeviceKind::cuda && precision == tape::Precision::f32 &&
                   !options.deterministic;
    return options;
}
/// What operands of products are, for people: "bf16", "tf32".
inline std::string products_in(const ops::BackendOptions& options, tape::Precision precision) {
    return options.tf32 ? "tf32" : tape::name_of(precision);
}

}  // namespace millrace::models
