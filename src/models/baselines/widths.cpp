#include "models/baselines/widths.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace::models {
namespace {

constexpr double kTolerance = 0.05;
constexpr std::int32_t kNarrowest = 20;  ///< balanced: narrower layers are left out

/// Widths of the hidden layers over the first one.
std::vector<double> ratios_of(BaselineKind kind) {
    switch (kind) {
        case BaselineKind::shallow: return {1, 0.9};
        case BaselineKind::balanced: return {1, 0.5, 0.25, 0.125};
        case BaselineKind::deep:
        case BaselineKind::deep_resnet: return std::vector<double>(8, 1.0);
        case BaselineKind::very_deep:
        case BaselineKind::very_deep_resnet: return std::vector<double>(12, 1.0);
    }
    return {};
}

/// Positive root of the number of parameters minus `target`, a quadratic in the width of the first layer. Where neighbours differ
/// in width a residual layer also has a projection; the quadratic counts it.
double solve(const std::vector<double>& ratios, bool residual, double target, double features, double classes) {
    const double first = residual ? 2 * features + 4 : features + 3;  // weights, bias, gain and shift; the projection
    double a = 0, b = first * ratios[0] + classes * ratios.back();
    for (std::size_t i = 1; i < ratios.size(); ++i) {
        const bool projected = residual && ratios[i] != ratios[i - 1];
        a += (projected ? 2 : 1) * ratios[i] * ratios[i - 1];
        b += (projected ? 4 : 3) * ratios[i];
    }
    const double c = classes - target;
    if (a == 0) return -c / b;
    return (std::sqrt(std::max(b * b - 4 * a * c, 0.0)) - b) / (2 * a);
}

}  // namespace

const char* name_of(BaselineKind kind) {
    constexpr const char* kNames[] = {"shallow", "balanced", "deep", "very_deep", "deep_resnet", "very_deep_resnet"};
    return kNames[static_cast<int>(kind)];
}

std::int64_t baseline_parameters(const std::vector<std::int32_t>& widths, bool residual, std::int32_t features,
                                 std::int32_t classes) {
    std::int64_t sum = 0, in = features;
    for (std::int64_t width : widths) {
        sum += in * width + 3 * width;
        if (residual && in != width) sum += in * width + width;
        in = width;
    }
    return sum + in * classes + classes;
}

base::Result<std::vector<std::int32_t>> solve_widths(BaselineKind kind, std::int64_t target, std::int32_t features,
                                                     std::int32_t classes) {
    std::vector<double> ratios = ratios_of(kind);
    const bool residual = is_residual(kind);
    auto solved = [&] { return solve(ratios, residual, static_cast<double>(target), features, classes); };
    double width = solved();
    while (kind == BaselineKind::balanced && ratios.size() > 1 && width * ratios.back() <= kNarrowest) {
        ratios.pop_back();
        width = solved();
    }
    std::vector<std::int32_t> widths;
    widths.reserve(ratios.size());
    for (double ratio : ratios) widths.push_back(static_cast<std::int32_t>(std::lround(width * ratio)));
    const std::int64_t found = widths.back() < 1 ? 0 : baseline_parameters(widths, residual, features, classes);
    if (std::abs(static_cast<double>(found - target)) > kTolerance * static_cast<double>(target))
        return base::Error{fmt::format(
            "no {} baseline for {} features and {} classes comes within 5 % of {} parameters (the nearest has {}); a larger "
            "model.target_parameters would do",
            name_of(kind), features, classes, target, found)};
    return widths;
}

}  // namespace millrace::models
