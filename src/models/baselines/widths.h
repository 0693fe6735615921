#pragma once
// Baselines of a given number of parameters: a chain of hidden layers whose width solves a quadratic.

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace millrace::models {

enum class BaselineKind : std::uint8_t { shallow, balanced, deep, very_deep, deep_resnet, very_deep_resnet };
constexpr BaselineKind kBaselines[] = {BaselineKind::shallow,   BaselineKind::balanced,    BaselineKind::deep,
                                       BaselineKind::very_deep, BaselineKind::deep_resnet, BaselineKind::very_deep_resnet};
const char* name_of(BaselineKind kind);
constexpr bool is_residual(BaselineKind kind) {
    return kind == BaselineKind::deep_resnet || kind == BaselineKind::very_deep_resnet;
}

/// Parameters of a chain: Linear + BatchNorm per hidden layer, with `residual` a projection where widths differ, a Linear head.
std::int64_t baseline_parameters(const std::vector<std::int32_t>& widths, bool residual, std::int32_t features,
                                 std::int32_t classes);

/// shallow: w, 0.9 w. balanced: w, w/2, w/4, w/8, without those of 20 or less. deep, deep_resnet: 8 times w. very_deep,
/// very_deep_resnet: 12 times w. An error when no width comes within 5 % of `target`.
base::Result<std::vector<std::int32_t>> solve_widths(BaselineKind kind, std::int64_t target, std::int32_t features,
                                                     std::int32_t classes);

}  // namespace millrace::models
