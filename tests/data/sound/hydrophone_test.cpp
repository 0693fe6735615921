#include "data/sound/hydrophone.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace millrace::data {
namespace {

std::vector<float> draw(std::uint64_t seed, std::uint32_t label, std::uint32_t index, double gain = 0) {
    std::vector<float> samples(kSoundSamples);
    draw_recording(seed, label, index, gain, std::span<float, kSoundSamples>(samples));
    return samples;
}

double level(const std::vector<float>& samples) {
    double sum = 0;
    for (const float sample : samples) sum += static_cast<double>(sample) * static_cast<double>(sample);
    return std::sqrt(sum / static_cast<double>(samples.size()));
}

TEST(Hydrophone, IsAFunctionOfSeedClassAndIndex) {
    for (std::uint32_t label = 0; label < kHydrophoneClasses.size(); ++label) {
        const std::vector<float> samples = draw(1, label, 5);
        EXPECT_EQ(samples, draw(1, label, 5));
        EXPECT_NE(samples, draw(2, label, 5));
        EXPECT_NE(samples, draw(1, label, 6));
        EXPECT_NE(samples, draw(1, (label + 1) % 5, 5));
        float peak = 0;
        for (const float sample : samples) peak = std::max(peak, std::abs(sample));
        EXPECT_NEAR(peak, 0.9f, 1e-6f);
    }
}

TEST(Hydrophone, GainIsInDecibels) {
    const std::vector<float> loud = draw(3, kHydrophoneLeak, 0), quiet = draw(3, kHydrophoneLeak, 0, -60);
    for (std::size_t n = 0; n < loud.size(); ++n) ASSERT_NEAR(quiet[n], loud[n] * 0.001f, 1e-9f);
}

TEST(Hydrophone, ClassesSoundAsTheyAreDescribed) {
    // The loudest hundredth of a second against the mean level, low frequencies taken out: rings stand out, noise does not.
    const auto crest = [](std::vector<float> samples) {
        for (std::size_t n = samples.size() - 1; n > 0; --n) samples[n] -= samples[n - 1];
        double loudest = 0;
        for (std::size_t n = 0; n + 41 <= samples.size(); n += 41)
            loudest = std::max(loudest, level({samples.begin() + static_cast<std::ptrdiff_t>(n),
                                               samples.begin() + static_cast<std::ptrdiff_t>(n + 41)}));
        return loudest / level(samples);
    };
    double rings = 0, background = 0;
    for (std::uint32_t index = 0; index < 8; ++index) {
        rings += crest(draw(9, 1, index)) / 8;
        background += crest(draw(9, 0, index)) / 8;
    }
    EXPECT_GT(rings, 2 * background);
}

TEST(Hydrophone, CountsFollowTheShares) {
    for (const std::uint32_t files : {0u, 1u, 7u, 100u, 2000u}) {
        const auto counts = hydrophone_counts(files);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), files);
    }
    EXPECT_EQ(hydrophone_counts(2000), (std::array<std::uint32_t, 5>{282, 282, 870, 283, 283}));
}

}  // namespace
}  // namespace millrace::data
