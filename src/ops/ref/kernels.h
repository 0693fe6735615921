#pragma once
// What the functions of the reference, one per operator, share: activations, their derivatives, dropout as a factor per element.
// The contracts are those of ops/op.h with real = stat = f64.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/philox.h"
#include "ops/activation.h"
#include "ops/op.h"

namespace millrace::ops::ref {

/// Calls body(member, group) for every matrix of an operand.
template <class Body>
void for_each_matrix(const tensor::Operand& shape, Body&& body) {
    for (int member = 0; member < shape.k; ++member)
        for (int group = 0; group < shape.g; ++group) body(member, group);
}

/// target (+) = value.
inline void store(double& target, double value, bool accumulate) { target = accumulate ? target + value : value; }

inline double normal_cdf(double u) { return 0.5 * std::erfc(u * -0.70710678118654752440); }  // 1 + erf would lose the left tail
inline double normal_pdf(double u) { return 0.39894228040143267794 * std::exp(-0.5 * u * u); }
inline double sigmoid(double u) { return 1 / (1 + std::exp(-u)); }

inline double activate(Activation activation, double u) {
    switch (activation) {
        case Activation::none: return u;
        case Activation::relu: return u < 0 ? 0 : u;  // this way round a NaN stays visible
        case Activation::gelu: return u * normal_cdf(u);
        case Activation::tanh: return std::tanh(u);
        case Activation::sigmoid: return sigmoid(u);
    }
    return u;
}

/// d activate / d u; relu has 0 at 0.
inline double slope(Activation activation, double u) {
    switch (activation) {
        case Activation::none: return 1;
        case Activation::relu: return u > 0 ? 1 : 0;
        case Activation::gelu: return normal_cdf(u) + u * normal_pdf(u);
        case Activation::tanh: return 1 - std::tanh(u) * std::tanh(u);
        case Activation::sigmoid: return sigmoid(u) * (1 - sigmoid(u));
    }
    return 1;
}

/// The factor of one element: 0 when dropped, else 1 / (1 - p); p is the layer's times the member's dropout_scale.
class Dropout {
public:
    Dropout(float p, std::uint32_t op_number, const tensor::Operand& state) : p_(p), op_number_(op_number), state_(state) {}

    /// Of kept elements.
    [[nodiscard]] double scale(int member) const { return p_ > 0 ? 1 / (1 - probability(member)) : 1; }
    [[nodiscard]] double factor(int member, std::int64_t element) const {
        if (!(p_ > 0)) return 1;
        const MemberState& state = state_of(state_, member);
        const double p = probability(member);
        const auto threshold = static_cast<std::uint32_t>(p * 4294967296.0);
        const bool kept =
            base::random_bits(state.seed, state.step, state.micro, op_number_, static_cast<std::uint64_t>(element)) >= threshold;
        return kept ? 1 / (1 - p) : 0;
    }

private:
    [[nodiscard]] double probability(int member) const {
        return std::min(static_cast<float>(p_) * state_of(state_, member).dropout_scale, 0x1.fffffep-1f);
    }
    double p_;
    std::uint32_t op_number_;
    const tensor::Operand& state_;
};

/// The number of an element inside its member, as dropout counts it.
inline std::int64_t element_of(const tensor::Operand& shape, std::int64_t group, std::int64_t row, std::int64_t col) {
    return (group * shape.rows + row) * shape.cols + col;
}

}  // namespace millrace::ops::ref
