#include "data/sound/mel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/half.h"

namespace millrace::data {
namespace {

using Window = std::array<float, kShortWindow>;
using Bands = std::array<double, kMelBands>;

constexpr double kGolden[3][kMelBands] = {
#include "data/sound/mel_rows.inc"
};

template <class Sample>
Window window_of(Sample sample) {
    Window window{};
    for (std::uint32_t n = 0; n < kShortWindow; ++n) window[n] = static_cast<float>(sample(static_cast<double>(n)));
    return window;
}
double tone(double hertz, double n) { return std::sin(2 * std::numbers::pi * hertz * n / kSoundRate); }

Bands bands_of(const Window& window) {
    Bands bands{};
    mel_bands_of<double, float>(window, bands);
    return bands;
}

/// By the formulas: every bin as a sum over all samples, every filter over all bins.
Bands slow_bands_of(const Window& window) {
    const auto corner = [](int i) {
        const double highest = 2595 * std::log10(1 + 2048.0 / 700);
        return 700 * (std::pow(10, highest * i / 65 / 2595) - 1);
    };
    Bands bands{};
    for (int band = 0; band < 64; ++band) {
        double sum = 0;
        for (int bin = 0; bin <= 256; ++bin) {
            double real = 0, imaginary = 0;
            for (int n = 0; n < 512; ++n) {
                const double turn = 2 * std::numbers::pi * n / 512;
                const double value = static_cast<double>(window[static_cast<std::size_t>(n)]) * (0.5 - 0.5 * std::cos(turn));
                real += value * std::cos(turn * bin);
                imaginary -= value * std::sin(turn * bin);
            }
            const double rising = (8.0 * bin - corner(band)) / (corner(band + 1) - corner(band));
            const double falling = (corner(band + 2) - 8.0 * bin) / (corner(band + 2) - corner(band + 1));
            sum += std::max(0.0, std::min(rising, falling)) * std::hypot(real, imaginary);
        }
        bands[static_cast<std::size_t>(band)] = 20 * std::log10(std::max(sum, 1e-10));
    }
    return bands;
}

TEST(Mel, EqualsTheFormulas) {
    const Window window = window_of([](double n) { return 0.3 * tone(77, n) + 0.2 * std::cos(n * n) - 0.05; });
    const Bands fast = bands_of(window), slow = slow_bands_of(window);
    for (std::size_t band = 0; band < kMelBands; ++band) EXPECT_NEAR(fast[band], slow[band], 1e-8) << band;
}

TEST(Mel, EqualsNumpy) {
    const std::array<Window, 3> windows{
        window_of([](double n) { return 0.5 * tone(440, n); }),
        window_of([](double n) { return (std::fmod(n * 7919, 101) - 50) / 100; }), window_of([](double n) {
            return 0.9 * tone(96, n + kSoundRate / 96.0 / 4) + 0.001 * tone(1500, n + kSoundRate / 1500.0 / 4);
        })};
    for (std::size_t i = 0; i < windows.size(); ++i) {
        const Bands bands = bands_of(windows[i]);
        for (std::size_t band = 0; band < kMelBands; ++band) EXPECT_NEAR(bands[band], kGolden[i][band], 1e-3) << i << " " << band;
    }
}

TEST(Mel, AToneIsLoudestInItsBandAndSilenceIs200DecibelsDown) {
    const Bands bands = bands_of(window_of([](double n) { return tone(1000, n); }));
    const auto loudest = static_cast<double>(std::ranges::max_element(bands) - bands.begin());
    const double mels_per_band = 2595 * std::log10(1 + 2048.0 / 700) / 65;
    EXPECT_NEAR(loudest + 1, 2595 * std::log10(1 + 1000.0 / 700) / mels_per_band, 1);
    for (const double silent : bands_of(Window{})) EXPECT_EQ(silent, -200);
}

TEST(Mel, AQuieterRecordingIsShiftedByItsGain) {
    std::vector<float> loud(kSoundSamples), quiet(kSoundSamples);
    for (std::uint32_t n = 0; n < kSoundSamples; ++n) {
        loud[n] = static_cast<float>(0.4 * std::cos(0.37 * n * (1 + 0.001 * n)));
        quiet[n] = loud[n] * 0x1p-10f;  // exact, so that rounding is not part of the test
    }
    std::vector<std::uint16_t> a(kRecordingMels), b(kRecordingMels);
    mels_of_recording(std::span<const float, kSoundSamples>(loud), std::span<std::uint16_t, kRecordingMels>(a));
    mels_of_recording(std::span<const float, kSoundSamples>(quiet), std::span<std::uint16_t, kRecordingMels>(b));
    for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(base::from_half(a[i]) - base::from_half(b[i]), 60.206, 0.2) << i;  // steps of f16: 0.125 dB below -128
}

TEST(Mel, WindowsFollowOneAnother) {
    std::vector<float> samples(kSoundSamples);
    const Window window = window_of([](double n) { return tone(300, n); });
    const std::size_t at = (7 * kShorts + 1) * kShortWindow;  // the second half of the eighth long window
    std::ranges::copy(window, samples.begin() + at);
    std::vector<std::uint16_t> mels(kRecordingMels);
    mels_of_recording(std::span<const float, kSoundSamples>(samples), std::span<std::uint16_t, kRecordingMels>(mels));
    const Bands expected = bands_of(window);
    for (std::size_t i = 0; i < mels.size(); ++i) {
        const std::size_t segment = i / kMelBands;
        ASSERT_NEAR(base::from_half(mels[i]), segment == 15 ? expected[i % kMelBands] : -200, 0.07) << i;
    }
}

}  // namespace
}  // namespace millrace::data
