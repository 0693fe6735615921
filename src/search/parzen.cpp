#include "search/parzen.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::search {
namespace {

constexpr double kWidth = 0.2;       // of a kernel around the only observation, in unit intervals
constexpr size_t kFullWeights = 25;  // newest observations that count in full

/// The standard normal's mass between a and b.
double normal_mass(double a, double b) {
    constexpr double kRootHalf = 0.7071067811865476;
    // On the side of the tail where differences do not cancel.
    if (a > 0) return 0.5 * (std::erfc(a * kRootHalf) - std::erfc(b * kRootHalf));
    return 0.5 * (std::erfc(-b * kRootHalf) - std::erfc(-a * kRootHalf));
}

double safe_log(double mass) { return std::log(std::max(mass, std::numeric_limits<double>::min())); }

}  // namespace

ParzenEstimator::ParzenEstimator(const Space& space, std::span<const Configuration> observed) : space_(space) {
    const size_t count = observed.size();
    const double kernels = static_cast<double>(count) + 1;
    const double narrowest = 1 / std::min(100.0, 1 + kernels);
    const double exponent = -1 / (static_cast<double>(space.size()) + 4);
    const double width = std::clamp(kWidth * std::pow(std::max<double>(static_cast<double>(count), 1), exponent), narrowest, 1.0);
    double sum = 1;  // the prior's weight
    std::vector<double> weights;
    for (size_t i = 0; i < count; ++i) {
        const size_t newer = count - 1 - i;
        const double older = static_cast<double>(count) - static_cast<double>(kFullWeights);
        const double ramp = older > 1 ? static_cast<double>(i) / (older - 1) : 1;
        const double lowest = 1 / static_cast<double>(count);
        weights.push_back(newer < kFullWeights ? 1 : lowest + (1 - lowest) * ramp);
        sum += weights.back();
        std::vector<Kernel>& kernel = kernels_.emplace_back();
        for (size_t p = 0; p < space.size(); ++p) {
            const Parameter& parameter = space.parameters[p];
            const double value = observed[i][p];
            Kernel part;
            if (parameter.kind == ParameterKind::choice) {
                part.cell = value;
            } else {
                part.cell = parameter.is_alternative(value) ? 0 : 1;
                if (!parameter.is_alternative(value)) {
                    part.mean = parameter.range_to_unit(value);
                    part.width = width;
                }
                part.inside = safe_log(normal_mass(-part.mean / part.width, (1 - part.mean) / part.width));
            }
            kernel.push_back(part);
        }
    }
    weights.push_back(1);
    Kernel prior;
    prior.inside = safe_log(normal_mass(-0.5, 0.5));
    kernels_.emplace_back(space.size(), prior);
    for (const double weight : weights) log_weights_.push_back(std::log(weight / sum));
}

double ParzenEstimator::log_cell(const Kernel& kernel, double cell, double cells) const {
    const double smooth = 1 / static_cast<double>(kernels_.size());
    const double seen = kernel.cell < 0 ? 0 : 1;
    return std::log((smooth + (kernel.cell == cell ? 1 : 0)) / (smooth * cells + seen));
}

double ParzenEstimator::sample_cell(const Kernel& kernel, double cells, Stream& stream) const {
    const double smooth = 1 / static_cast<double>(kernels_.size());
    const double stay = kernel.cell < 0 ? 0 : 1 / (smooth * cells + 1);
    const double draw = stream.uniform(), other = stream.uniform();
    return draw < stay ? kernel.cell : std::floor(other * cells);
}

double ParzenEstimator::log_kernel(const Parameter& parameter, const Kernel& kernel, double value) const {
    const auto cells = static_cast<double>(parameter.cells());
    if (parameter.kind == ParameterKind::choice) return log_cell(kernel, value, cells);
    const bool is_alternative = parameter.is_alternative(value);
    const double choice = parameter.alternative ? log_cell(kernel, is_alternative ? 0 : 1, 2) : 0;
    if (is_alternative) return choice;
    const double unit = parameter.range_to_unit(value);
    if (parameter.kind == ParameterKind::integer) {
        const double half = 0.5 / cells;
        const double mass = normal_mass((unit - half - kernel.mean) / kernel.width, (unit + half - kernel.mean) / kernel.width);
        return choice + safe_log(mass) - kernel.inside;
    }
    const double distance = (unit - kernel.mean) / kernel.width;
    return choice - 0.5 * distance * distance - std::log(kernel.width) - kernel.inside;
}

Configuration ParzenEstimator::sample(Stream& stream) const {
    double draw = stream.uniform();
    size_t chosen = 0;
    for (; chosen + 1 < kernels_.size(); ++chosen) {
        draw -= std::exp(log_weights_[chosen]);
        if (draw < 0) break;
    }
    Configuration out;
    for (size_t p = 0; p < space_.size(); ++p) {
        const Parameter& parameter = space_.parameters[p];
        const Kernel& kernel = kernels_[chosen][p];
        if (parameter.kind == ParameterKind::choice) {
            out.push_back(sample_cell(kernel, static_cast<double>(parameter.cells()), stream));
            continue;
        }
        if (parameter.alternative && sample_cell(kernel, 2, stream) == 0) {
            out.push_back(*parameter.alternative);
            continue;
        }
        // At least a third of the mass of every kernel lies within [0, 1], so few draws are thrown away.
        double unit = -1;
        while (unit < 0 || unit > 1) unit = kernel.mean + kernel.width * stream.normal();
        out.push_back(parameter.range_from_unit(unit));
    }
    return out;
}

double ParzenEstimator::log_density(const Configuration& configuration) const {
    std::vector<double> terms = log_weights_;
    for (size_t k = 0; k < kernels_.size(); ++k)
        for (size_t p = 0; p < space_.size(); ++p) terms[k] += log_kernel(space_.parameters[p], kernels_[k][p], configuration[p]);
    const double largest = *std::max_element(terms.begin(), terms.end());
    double sum = 0;
    for (const double term : terms) sum += std::exp(term - largest);
    return largest + std::log(sum);
}

}  // namespace millrace::search
