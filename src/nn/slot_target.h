#pragma once
// What layers share: names of parameters that stand side by side, what is appended to gradients, what a loss divides by.

#include <string>
#include <vector>

#include "ops/dense/dense.h"
#include "ops/loss/loss.h"
#include "tape/record.h"

namespace millrace::nn {

using tape::record_of;
using tape::Slot;

inline std::vector<std::string> with_suffix(const std::vector<std::string>& prefixes, const std::string& suffix) {
    std::vector<std::string> names;
    names.reserve(prefixes.size());
    for (const std::string& prefix : prefixes) names.push_back(prefix + suffix);
    return names;
}

/// "layer", or "layer (x3)" for three.
inline std::string label_of(const std::vector<std::string>& names) {
    return names.size() == 1 ? names.front() : names.front() + " (x" + std::to_string(names.size()) + ")";
}

/// Adds dz^T x to a weight's gradient.
inline void append_weight_product(tape::Builder& builder, const tensor::View& dz, const tensor::View& x, const Slot& dw,
                                  const std::string& layer) {
    builder.append_weight_gradient(record_of(&ops::linear_wgrad::kDef, ops::LinearGradParams{}, layer, {dz, x, dw}));
}

/// Where a loss writes the gradient of `value`; a value has one loss. Left out in evaluation programs.
inline Slot only_loss_of(tape::Builder& builder, const tape::Value& value) {
    if (!builder.training()) return {};
    const tape::Builder::Target target = builder.gradient_target(value);
    MILLRACE_ASSERT(!target.accumulate, "a value has a second loss");
    return target;
}

/// How a loss that divides by something in the data is weighted: by the sum over the step, or by its part's own and that part's
/// share of the rows.
struct Mean {
    double scale = 1;
    tensor::View total = {};
};
/// `what`: "a mean over tokens".
inline Mean step_mean(tape::Builder& builder, const std::string& loss, const std::string& what) {
    const tensor::View total = builder.loss_total(loss);
    if (total.present()) return {1, total};
    if (builder.share() < 1) builder.couple_rows(what + " of " + loss);
    return {builder.share(), {}};
}

/// Appends the sum over a whole step that a loss divides by in its parts.
inline void append_loss_total(tape::Builder& builder, const std::string& loss, const ops::LossTotalParams& params,
                              const tensor::View& values, const tensor::View& weights = {}) {
    const tensor::View total = builder.buffer(1, 1, 2, builder.stat(), tape::Role::activation, loss + ".total");
    builder.append(record_of(&ops::loss_total::kDef, params, loss, {values, weights, total}));
    builder.set_loss_total(loss, total);
}

}  // namespace millrace::nn
