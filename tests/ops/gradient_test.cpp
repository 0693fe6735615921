// Backward operators of the reference backend against central differences of its forward operators.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/collective/ops/diversity.h"
#include "models/leak_cnn/ops/sounds.h"
#include "op_case.h"
#include "ops/dense/dense.h"
#include "ops/norm/layernorm.h"
#include "ops/pointwise/pointwise.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

constexpr double kTolerance = 1e-7;

struct Dense {
    Norm norm;
    Activation activation;
    float dropout;
};
class DenseGradient : public ::testing::TestWithParam<Dense> {};

TEST_P(DenseGradient, EqualsCentralDifferences) {
    namespace f = dense_forward;
    namespace b = dense_backward;
    constexpr int K = 2, G = 2, B = 5, In = 4, Out = 3;
    const DenseParams params{GetParam().norm, GetParam().activation, GetParam().dropout, 1e-5f, 0.1f, 7};
    const bool normed = params.norm == Norm::batch_train;
    RefProgram p;
    const auto x = p.random(K, G, B, In, -1, 1), w = p.random(K, G, Out, In, -1, 1), bias = p.random(K, G, 1, Out, -1, 1);
    const auto gamma = p.random(K, G, 1, Out, 0.5, 1.5), beta = p.random(K, G, 1, Out, -0.5, 0.5);
    const auto running_mean = p.random(K, G, 1, Out, -1, 1), running_var = p.random(K, G, 1, Out, 1, 2);
    const auto saved = p.tensor(K, G, B, Out), inv_std = p.tensor(K, G, 1, Out), state = p.states(sample_states(K));
    const auto y = p.tensor(K, G, B, Out), dy = p.random(K, G, B, Out, -1, 1), dz = p.tensor(K, G, B, Out);
    const auto dgamma = p.tensor(K, G, 1, Out), dbeta = p.tensor(K, G, 1, Out), dbias = p.tensor(K, G, 1, Out);
    const auto dx = p.tensor(K, G, B, In), dw = p.tensor(K, G, Out, In);
    p.add(&dense_forward::kDef, params,
          {{f::x, x},
           {f::w, w},
           {f::bias, bias},
           {f::gamma, gamma},
           {f::beta, beta},
           {f::running_mean, running_mean},
           {f::running_var, running_var},
           {f::saved, saved},
           {f::inv_std, inv_std},
           {f::state, state},
           {f::y, y}});
    p.add(&dense_backward::kDef, params,
          {{b::dy, dy},
           {b::saved, saved},
           {b::gamma, gamma},
           {b::beta, beta},
           {b::inv_std, inv_std},
           {b::state, state},
           {b::dz, dz},
           {b::dgamma, dgamma},
           {b::dbeta, dbeta},
           {b::dbias, dbias}});
    p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, dz}, {linear_dgrad::w, w}, {linear_dgrad::dx, dx}});
    p.add(&linear_wgrad::kDef, LinearGradParams{}, {{linear_wgrad::dz, dz}, {linear_wgrad::x, x}, {linear_wgrad::dw, dw}});
    const auto objective = functional(p, y, dy);
    EXPECT_LT(p.gradient_error(x, dx, objective), kTolerance);
    EXPECT_LT(p.gradient_error(w, dw, objective), kTolerance);
    if (normed) {
        EXPECT_LT(p.gradient_error(gamma, dgamma, objective), kTolerance);
        EXPECT_LT(p.gradient_error(beta, dbeta, objective), kTolerance);
        // The norm subtracts what a bias adds: its gradient is zero and never written.
        const auto zero = p.tensor(K, G, 1, Out, std::vector<double>(K * G * Out, 0.0));
        EXPECT_LT(p.gradient_error(bias, zero, objective), kTolerance);
        p.run();
        for (const double value : p.values(dbias)) EXPECT_TRUE(std::isnan(value));
    } else {
        EXPECT_LT(p.gradient_error(bias, dbias, objective), kTolerance);
    }
}

/// The records of batch statistics over more rows than one chunk has.
class BatchGradient : public ::testing::TestWithParam<Activation> {};

TEST_P(BatchGradient, EqualsCentralDifferences) {
    namespace f = batch_apply;
    namespace b = batch_apply_backward;
    constexpr int K = 2, G = 2, B = kMomentRows + 5, Out = 2, kChunks = 2;
    const DenseParams params{Norm::batch_train, GetParam(), 0.3f, 1e-5f, 0.1f, 7};
    RefProgram p;
    const auto z = p.random(K, G, B, Out, -1, 2), moments = p.tensor(K, G, kChunks, 2 * Out),
               bias = p.random(K, G, 1, Out, -1, 1);
    const auto gamma = p.random(K, G, 1, Out, 0.5, 1.5), beta = p.random(K, G, 1, Out, -0.5, 0.5);
    const auto running_mean = p.random(K, G, 1, Out, -1, 1), running_var = p.random(K, G, 1, Out, 1, 2);
    const auto saved = p.tensor(K, G, B, Out), inv_std = p.tensor(K, G, 1, Out), state = p.states(sample_states(K));
    const auto y = p.tensor(K, G, B, Out), dy = p.random(K, G, B, Out, -1, 1), dz = p.tensor(K, G, B, Out);
    const auto dgamma = p.tensor(K, G, 1, Out), dbeta = p.tensor(K, G, 1, Out), sums = p.tensor(K, G, kChunks, 2 * Out);
    p.add(&batch_moments::kDef, BatchMomentsParams{}, {{batch_moments::z, z}, {batch_moments::moments, moments}});
    p.add(&batch_apply::kDef, params,
          {{f::z, z},
           {f::moments, moments},
           {f::bias, bias},
           {f::gamma, gamma},
           {f::beta, beta},
           {f::running_mean, running_mean},
           {f::running_var, running_var},
           {f::saved, saved},
           {f::inv_std, inv_std},
           {f::state, state},
           {f::y, y}});
    namespace m = batch_moments_backward;
    p.add(&batch_moments_backward::kDef, params,
          {{m::dy, dy}, {m::saved, saved}, {m::gamma, gamma}, {m::beta, beta}, {m::sums, sums}, {m::state, state}});
    p.add(&batch_apply_backward::kDef, params,
          {{b::dy, dy},
           {b::saved, saved},
           {b::gamma, gamma},
           {b::beta, beta},
           {b::inv_std, inv_std},
           {b::state, state},
           {b::dz, dz},
           {b::dgamma, dgamma},
           {b::dbeta, dbeta},
           {b::sums, sums}});
    const auto objective = functional(p, y, dy);
    EXPECT_LT(p.gradient_error(z, dz, objective), kTolerance);
    EXPECT_LT(p.gradient_error(gamma, dgamma, objective), kTolerance);
    EXPECT_LT(p.gradient_error(beta, dbeta, objective), kTolerance);
}
INSTANTIATE_TEST_SUITE_P(All, BatchGradient, ::testing::Values(Activation::none, Activation::relu, Activation::gelu));

std::vector<Dense> dense_variants() {
    std::vector<Dense> list;
    for (const Norm norm : {Norm::none, Norm::batch_train})
        for (const Activation activation :
             {Activation::none, Activation::relu, Activation::gelu, Activation::tanh, Activation::sigmoid})
            for (const float dropout : {0.0f, 0.3f}) list.push_back({norm, activation, dropout});
    return list;
}
INSTANTIATE_TEST_SUITE_P(All, DenseGradient, ::testing::ValuesIn(dense_variants()));

class PointwiseGradient : public ::testing::TestWithParam<Activation> {};

TEST_P(PointwiseGradient, EqualsCentralDifferences) {
    for (const float dropout : {0.0f, 0.4f}) {
        const PointwiseParams params{GetParam(), dropout, 3};
        RefProgram p;
        const auto x = p.random(2, 2, 5, 3, -2, 2), y = p.tensor(2, 2, 5, 3), state = p.states(sample_states(2));
        const auto dy = p.random(2, 2, 5, 3, -1, 1), dx = p.tensor(2, 2, 5, 3);
        p.add(&pointwise_forward::kDef, params,
              {{pointwise_forward::x, x}, {pointwise_forward::state, state}, {pointwise_forward::y, y}});
        p.add(&pointwise_backward::kDef, params,
              {{pointwise_backward::dy, dy},
               {pointwise_backward::x, x},
               {pointwise_backward::state, state},
               {pointwise_backward::dx, dx}});
        EXPECT_LT(p.gradient_error(x, dx, functional(p, y, dy)), kTolerance) << "dropout " << dropout;
    }
}
INSTANTIATE_TEST_SUITE_P(All, PointwiseGradient,
                         ::testing::Values(Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                                           Activation::sigmoid));

TEST(LayerNormGradient, EqualsCentralDifferences) {
    namespace f = layernorm_forward;
    namespace b = layernorm_backward;
    RefProgram p;
    const auto x = p.random(2, 2, 3, 5, -1, 2), gamma = p.random(2, 2, 1, 5, 0.5, 1.5), beta = p.random(2, 2, 1, 5, -1, 1);
    const auto mean = p.tensor(2, 2, 3, 1), inv_std = p.tensor(2, 2, 3, 1), y = p.tensor(2, 2, 3, 5),
               dy = p.random(2, 2, 3, 5, -1, 1);
    const auto dx = p.tensor(2, 2, 3, 5), dgamma = p.tensor(2, 2, 1, 5), dbeta = p.tensor(2, 2, 1, 5);
    p.add(&layernorm_forward::kDef, LayerNormParams{},
          {{f::x, x}, {f::gamma, gamma}, {f::beta, beta}, {f::mean, mean}, {f::inv_std, inv_std}, {f::y, y}});
    p.add(&layernorm_backward::kDef, LayerNormParams{},
          {{b::dy, dy},
           {b::x, x},
           {b::gamma, gamma},
           {b::mean, mean},
           {b::inv_std, inv_std},
           {b::dx, dx},
           {b::dgamma, dgamma},
           {b::dbeta, dbeta}});
    const auto objective = functional(p, y, dy);
    EXPECT_LT(p.gradient_error(x, dx, objective), kTolerance);
    EXPECT_LT(p.gradient_error(gamma, dgamma, objective), kTolerance);
    EXPECT_LT(p.gradient_error(beta, dbeta, objective), kTolerance);
}

TEST(CrossEntropyGradient, EqualsCentralDifferencesOfTheScaledMean) {
    namespace at = cross_entropy;
    for (const double scale : {1.0, 0.25}) {
        RefProgram p;
        const auto logits = p.random(2, 1, 4, 6, -2, 2), dlogits = p.tensor(2, 1, 4, 6);
        const auto labels = p.indices(2, 4, {0, 5, 2, 2, 3, 1, 0, 4}), state = p.states(std::vector<MemberState>(2));
        p.add(&cross_entropy::kDef, LossParams{scale},
              {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}});
        const auto objective = [&] { return (p.state(state, 0).loss + p.state(state, 1).loss) * scale / 4; };
        EXPECT_LT(p.gradient_error(logits, dlogits, objective), kTolerance) << "scale " << scale;
    }
}

TEST(CrossEntropyGradient, EqualsCentralDifferencesOfTheMeanWithWeights) {
    namespace at = cross_entropy;
    RefProgram p;
    const auto logits = p.random(2, 1, 4, 6, -2, 2), dlogits = p.tensor(2, 1, 4, 6), weights = p.random(2, 1, 1, 6, 0.1, 9);
    const auto labels = p.indices(2, 4, {0, 5, 2, 2, 3, 1, 0, 4}), state = p.states(std::vector<MemberState>(2));
    p.add(&cross_entropy::kDef, LossParams{0.25},
          {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}, {at::weights, weights}});
    const auto objective = [&] { return (p.state(state, 0).loss + p.state(state, 1).loss) * 0.25 / 4; };
    EXPECT_LT(p.gradient_error(logits, dlogits, objective), kTolerance);
}

TEST(WeightedCrossEntropyGradient, EqualsCentralDifferences) {
    namespace at = weighted_cross_entropy;
    for (const bool by_rows : {false, true})
        for (const double focus : {0.0, 0.7, 2.0}) {
            RefProgram p;
            const auto logits = p.random(2, 1, 4, 3, -2, 2), dlogits = p.tensor(2, 1, 4, 3);
            const auto weights = p.random(2, 1, 1, 3, 0.3, 2), gamma = p.random(2, 1, 1, 1, focus, focus);
            const auto labels = p.indices(2, 4, {0, 2, 2, 1, 1, 1, 0, 2}), state = p.states(std::vector<MemberState>(2));
            p.add(&weighted_cross_entropy::kDef, WeightedLossParams{0.5, by_rows},
                  {{at::logits, logits},
                   {at::labels, labels},
                   {at::weights, weights},
                   {at::gamma, gamma},
                   {at::state, state},
                   {at::dlogits, dlogits}});
            const auto objective = [&] { return (p.state(state, 0).loss + p.state(state, 1).loss) * 0.5 / 4; };
            EXPECT_LT(p.gradient_error(logits, dlogits, objective), kTolerance) << by_rows << " " << focus;
        }
}

TEST(BinaryCrossEntropyGradient, EqualsCentralDifferences) {
    namespace at = binary_cross_entropy;
    RefProgram p;
    const auto logit = p.random(2, 1, 4, 1, -2, 2), dlogit = p.tensor(2, 1, 4, 1), weight = p.random(2, 1, 1, 1, 0.3, 2);
    const auto labels = p.indices(2, 4, {0, 2, 2, 1, 1, 1, 0, 2}), state = p.states(std::vector<MemberState>(2));
    p.add(&binary_cross_entropy::kDef, BinaryLossParams{0.5, 2},
          {{at::logit, logit}, {at::labels, labels}, {at::weight, weight}, {at::state, state}, {at::dlogit, dlogit}});
    const auto objective = [&] { return p.state(state, 0).penalty + p.state(state, 1).penalty; };
    EXPECT_LT(p.gradient_error(logit, dlogit, objective), kTolerance);
}

TEST(MseGradient, EqualsCentralDifferencesOfTheScaledMean) {
    namespace at = mse;
    for (const double scale : {1.0, 0.4}) {
        RefProgram p;
        const auto prediction = p.random(2, 1, 4, 3, -2, 2), target = p.random(2, 1, 4, 3, -2, 2),
                   gradient = p.tensor(2, 1, 4, 3);
        const auto state = p.states(std::vector<MemberState>(2));
        p.add(&mse::kDef, LossParams{scale},
              {{at::prediction, prediction}, {at::target, target}, {at::state, state}, {at::dprediction, gradient}});
        const auto objective = [&] { return (p.state(state, 0).loss + p.state(state, 1).loss) * scale / 4; };
        EXPECT_LT(p.gradient_error(prediction, gradient, objective), kTolerance) << "scale " << scale;
    }
}

TEST(MseGradient, EqualsCentralDifferencesOfThePenalty) {
    namespace at = mse;
    RefProgram p;
    const auto prediction = p.random(2, 1, 4, 3, -2, 2), target = p.random(2, 1, 4, 3, -2, 2), gradient = p.tensor(2, 1, 4, 3);
    const auto state = p.states(std::vector<MemberState>(2));
    p.add(&mse::kDef, LossParams{0.4, false},
          {{at::prediction, prediction}, {at::target, target}, {at::state, state}, {at::dprediction, gradient}});
    const auto objective = [&] { return p.state(state, 0).penalty + p.state(state, 1).penalty; };
    EXPECT_LT(p.gradient_error(prediction, gradient, objective), kTolerance);
    EXPECT_EQ(p.state(state, 0).rows, 0u);
    EXPECT_EQ(p.state(state, 0).loss, 0);
}

TEST(CosineDiversityGradient, EqualsCentralDifferences) {
    namespace at = cosine_diversity;
    for (const int groups : {2, 3, 5}) {
        RefProgram p;
        const auto o = p.random(2, groups, 3, 4, -1, 1), dout = p.tensor(2, groups, 3, 4),
                   state = p.states(std::vector<MemberState>(2));
        p.add(&cosine_diversity::kDef, DiversityParams{0.7, 0.5, 0.25}, {{at::o, o}, {at::state, state}, {at::dout, dout}});
        const auto objective = [&] { return p.state(state, 0).penalty + p.state(state, 1).penalty; };
        EXPECT_LT(p.gradient_error(o, dout, objective), kTolerance) << groups << " groups";
    }
}

// x feeds two layers; the second one's share of its gradient is added to the first one's, and both weights see the same dy.
TEST(AccumulatedGradient, EqualsCentralDifferences) {
    RefProgram p;
    const auto x = p.random(1, 1, 4, 3, -1, 1), first = p.random(1, 1, 2, 3, -1, 1), second = p.random(1, 1, 2, 3, -1, 1);
    const auto left = p.tensor(1, 1, 4, 2), right = p.tensor(1, 1, 4, 2), y = p.tensor(1, 1, 4, 2),
               dy = p.random(1, 1, 4, 2, -1, 1);
    const auto dx = p.tensor(1, 1, 4, 3), dfirst = p.tensor(1, 1, 2, 3);
    namespace f = dense_forward;
    p.add(&dense_forward::kDef, DenseParams{}, {{f::x, x}, {f::w, first}, {f::y, left}});
    p.add(&dense_forward::kDef, DenseParams{}, {{f::x, x}, {f::w, second}, {f::y, right}});
    p.add(&add::kDef, AddParams{}, {{add::a, left}, {add::b, right}, {add::out, y}});
    p.add(&linear_wgrad::kDef, LinearGradParams{}, {{linear_wgrad::dz, dy}, {linear_wgrad::x, x}, {linear_wgrad::dw, dfirst}});
    p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, dy}, {linear_dgrad::w, first}, {linear_dgrad::dx, dx}});
    p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, dy}, {linear_dgrad::w, second}, {linear_dgrad::dx, dx}},
          1u << linear_dgrad::dx);
    EXPECT_LT(p.gradient_error(x, dx, functional(p, y, dy)), kTolerance);
    EXPECT_LT(p.gradient_error(first, dfirst, functional(p, y, dy)), kTolerance);
}

}  // namespace
}  // namespace millrace::ops::cases
