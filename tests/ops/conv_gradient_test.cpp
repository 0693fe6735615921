// conv_backward of the reference backend against central differences of conv_forward.

#include <gtest/gtest.h>

#include <numeric>

#include "op_case.h"
#include "ops/conv/conv.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

class ConvGradient : public ::testing::TestWithParam<ConvParams> {};

TEST_P(ConvGradient, EqualsCentralDifferences) {
    namespace f = conv_forward;
    namespace b = conv_backward;
    constexpr int K = 2, B = 3;
    const ConvParams& params = GetParam();
    RefProgram p;
    const auto x = p.random(K, 1, B, params.in_columns(), -1, 1), w = p.random(K, 1, params.out, params.weights(), -1, 1);
    const auto bias = p.random(K, 1, 1, params.out, -1, 1), state = p.states(sample_states(K));
    const auto y = p.tensor(K, 1, B, params.out_columns()), dy = p.random(K, 1, B, params.out_columns(), -1, 1);
    const auto chosen = p.bytes(K, 1, B, params.out_columns());
    const auto dx = p.tensor(K, 1, B, params.in_columns()), dw = p.tensor(K, 1, params.out, params.weights());
    const auto dbias = p.tensor(K, 1, 1, params.out);
    p.add(&f::kDef, params, {{f::x, x}, {f::w, w}, {f::bias, bias}, {f::state, state}, {f::chosen, chosen}, {f::y, y}});
    p.add(
        &b::kDef, params,
        {{b::dy, dy}, {b::chosen, chosen}, {b::x, x}, {b::w, w}, {b::state, state}, {b::dx, dx}, {b::dw, dw}, {b::dbias, dbias}});
    const auto objective = [&] {
        const auto &left = p.values(y), &right = p.values(dy);
        return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
    };
    EXPECT_LT(p.gradient_error(x, dx, objective), 1e-7);
    EXPECT_LT(p.gradient_error(w, dw, objective), 1e-7);
    EXPECT_LT(p.gradient_error(bias, dbias, objective), 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Conv, ConvGradient,
                         ::testing::Values(ConvParams{8, 1, 2, 3, 3, 3, 2, 1, true, true, 0.25f, 3},
                                           ConvParams{5, 4, 2, 3, 3, 5, 2, 2, true}, ConvParams{4, 3, 1, 2, 3, 3, 1, 1, false},
                                           ConvParams{2, 2, 3, 2, 5, 5, 1, 1, true}));

}  // namespace
}  // namespace millrace::ops::cases
