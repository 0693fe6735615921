// Mel bands of tones and of silence on every backend against f64.
#include "models/leak_cnn/ops/sounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "case_runner.h"
#include "data/sound/mel.h"

namespace millrace::ops::cases {
namespace {

constexpr int kRows = 4, kWindow = data::kShortWindow;

/// A tone on a bin, one between two, a loud one with a soft one beside it, silence.
std::vector<double> sounds() {
    std::vector<double> samples;
    const auto tone = [](double hertz, int n) { return std::sin(2 * std::numbers::pi * hertz * n / data::kSoundRate); };
    for (int row = 0; row < kRows; ++row)
        for (int n = 0; n < kWindow; ++n) {
            const double value = row == 0   ? tone(800, n)
                                 : row == 1 ? 0.5 * tone(443, n)
                                 : row == 2 ? 0.9 * tone(96, n) + 0.001 * tone(1500, n)
                                            : 0;
            samples.push_back(static_cast<double>(static_cast<float>(value)));
        }
    return samples;
}

double amplitude(double decibels) { return std::pow(10, decibels / 20); }

/// The error of a bin in f32 is a share of the loudest bin, so bands far below it differ by many decibels: amplitudes are
/// compared. A band adds up to 20 bins, and their errors of about 1e-7 each with them.
void expect_bands(DeviceKind device) {
    auto backend = make_backend(device, {});
    ASSERT_TRUE(backend.ok()) << backend.error().text();
    OpCase c;
    c.name = "mel_bands/tones";
    c.op = &mel_bands::kDef;
    c.params = MelBandsParams{};
    c.slot(mel_bands::x, Element::stat, 1, 1, kRows, data::kShortWindow, given(sounds()));
    c.slot(mel_bands::y, Element::stat, 1, 1, kRows, data::kMelBands, poison());
    const auto outcome = run_case(**backend, Precision::f32, c);
    ASSERT_TRUE(outcome.ok()) << outcome.error().text();
    const std::vector<double> got = outcome->slots[mel_bands::y].values();
    const std::vector<double> samples = sounds();
    for (std::size_t row = 0; row < kRows; ++row) {
        std::array<float, data::kShortWindow> window;
        std::transform(samples.begin() + static_cast<std::ptrdiff_t>(row * data::kShortWindow),
                       samples.begin() + static_cast<std::ptrdiff_t>((row + 1) * data::kShortWindow), window.begin(),
                       [](double value) { return static_cast<float>(value); });
        std::array<double, data::kMelBands> expected;
        data::mel_bands_of<double, float>(window, expected);
        const double loudest = amplitude(std::ranges::max(expected));
        for (std::size_t band = 0; band < data::kMelBands; ++band) {
            const double value = got[row * data::kMelBands + band];
            EXPECT_NEAR(amplitude(value), amplitude(expected[band]), 2e-6 * loudest) << row << " " << band;
            if (row == 3) {
                EXPECT_NEAR(value, -200, 1e-4);
            }
        }
    }
}

TEST(MelBands, TonesAndSilenceOnTheCpu) { expect_bands(DeviceKind::cpu); }

TEST(MelBands, TonesAndSilenceOnCuda) {
    if (const auto there = cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    expect_bands(DeviceKind::cuda);
}

}  // namespace
}  // namespace millrace::ops::cases
