#include "data/sound/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace millrace::data {
namespace {

std::vector<float> sine(double hertz, std::uint32_t rate, double seconds) {
    std::vector<float> samples(static_cast<std::size_t>(seconds * rate));
    for (std::size_t n = 0; n < samples.size(); ++n)
        samples[n] = static_cast<float>(std::sin(2 * std::numbers::pi * hertz * static_cast<double>(n) / rate));
    return samples;
}

/// The largest difference from `amplitude` times the tone, away from the ends.
double error_of(std::uint32_t from, std::uint32_t to, double hertz, double amplitude) {
    const std::vector<float> input = sine(hertz, from, 1), wanted = sine(hertz, to, 1);
    const Resampler resampler(from, to);
    const std::vector<float> got = resampler.resample(input, UINT64_MAX);
    EXPECT_EQ(got.size(), to);
    const std::size_t edge = static_cast<std::size_t>(std::ceil(70.0 * to / std::min(from, to)));
    double worst = 0;
    for (std::size_t n = edge; n + edge < got.size(); ++n)
        worst = std::max(worst, std::abs(static_cast<double>(got[n]) - amplitude * static_cast<double>(wanted[n])));
    return worst;
}

TEST(Resample, TonesOfThePassbandKeepLevelAndPhase) {
    for (const std::uint32_t from : {8000u, 16'000u, 44'100u, 48'000u, 22'051u, 192'000u, 4097u, 999'983u})
        for (const double hertz : {20.0, 437.0, 1800.0})
            EXPECT_LT(error_of(from, 4096, hertz, 1), 1.2e-3) << from << " " << hertz;
    for (const std::uint32_t from : {1000u, 2000u, 3000u}) EXPECT_LT(error_of(from, 4096, 0.44 * from, 1), 1.2e-3) << from;
}

TEST(Resample, WhatTheNewRateCannotHoldIsGone) {
    for (const std::uint32_t from : {8000u, 44'100u, 48'000u, 22'051u})
        for (const double hertz : {2060.0, 2500.0, 3900.0})
            EXPECT_LT(error_of(from, 4096, hertz, 0), 1e-4) << from << " " << hertz;
    EXPECT_LT(error_of(44'100, 4096, 15'000, 0), 1e-4);
}

TEST(Resample, EqualRatesCopyAndConstantsStay) {
    const std::vector<float> input = sine(300, 4096, 0.5);
    EXPECT_EQ(Resampler(4096, 4096).resample(input, UINT64_MAX), input);
    EXPECT_EQ(Resampler(4096, 4096).resample(input, 100).size(), 100u);
    const std::vector<float> constant(8000, 0.25f);
    const std::vector<float> got = Resampler(8000, 4096).resample(constant, UINT64_MAX);
    for (std::size_t n = 100; n < 3900; ++n) ASSERT_NEAR(got[n], 0.25f, 1e-6f);
}

TEST(Resample, TheBeginningNeedsNoMoreThanItSays) {
    const std::vector<float> input = sine(300, 44'100, 2);
    const Resampler resampler(44'100, 4096);
    const std::vector<float> whole = resampler.resample(input, 1000);
    const std::uint64_t needed = resampler.needs(1000);
    ASSERT_LT(needed, input.size());
    EXPECT_EQ(resampler.resample(std::span(input).first(needed), 1000), whole);
}

TEST(Resample, ShortInputs) {
    const Resampler resampler(48'000, 4096);
    EXPECT_TRUE(resampler.resample({}, 10).empty());
    EXPECT_EQ(resampler.resample(std::vector<float>{1}, 10).size(), 1u);
    EXPECT_EQ(resampler.length(480'000), 40'960u);
}

}  // namespace
}  // namespace millrace::data
