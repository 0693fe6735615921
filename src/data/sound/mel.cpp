#include "data/sound/mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/half.h"

namespace millrace::data {
namespace {

using Complex = std::complex<double>;

double mel_of(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double hertz_of(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

Complex times(Complex a, Complex b) {  // std::complex looks after infinities, which costs a call
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace

MagnitudeSpectrum::MagnitudeSpectrum() {
    constexpr double turn = 2 * std::numbers::pi / kShortWindow;
    for (std::uint32_t n = 0; n < kShortWindow; ++n) window_[n] = 0.5 - 0.5 * std::cos(turn * n);
    for (std::uint32_t k = 0; k < kHalf; ++k) turns_[k] = {std::cos(turn * k), -std::sin(turn * k)};
    for (std::uint32_t i = 0; i < kHalf; ++i) {
        std::uint32_t backwards = 0;
        for (std::uint32_t bit = 1, value = i; bit < kHalf; bit *= 2, value /= 2) backwards = backwards * 2 + value % 2;
        reversed_[i] = static_cast<std::uint8_t>(backwards);
    }
}

void MagnitudeSpectrum::of(std::span<const float, kShortWindow> samples, std::span<double, kSpectrumBins> magnitudes) const {
    std::array<Complex, kHalf> z;
    for (std::uint32_t i = 0; i < kHalf; ++i) {
        const std::uint32_t even = 2 * reversed_[i];
        z[i] = {static_cast<double>(samples[even]) * window_[even], static_cast<double>(samples[even + 1]) * window_[even + 1]};
    }
    for (std::uint32_t size = 2; size <= kHalf; size *= 2)
        for (std::uint32_t start = 0; start < kHalf; start += size)
            for (std::uint32_t k = 0; k < size / 2; ++k) {
                const Complex low = z[start + k], high = times(turns_[k * (kShortWindow / size)], z[start + k + size / 2]);
                z[start + k] = low + high;
                z[start + k + size / 2] = low - high;
            }
    // The even samples' spectrum is the part of z that is symmetric as spectra of real numbers are, the odd ones' the rest.
    for (std::uint32_t k = 0; k < kSpectrumBins; ++k) {
        const Complex here = z[k % kHalf], mirrored = std::conj(z[(kHalf - k) % kHalf]);
        const Complex even = 0.5 * (here + mirrored), odd = times({0, -0.5}, here - mirrored);
        const Complex turn = k == kHalf ? Complex{-1, 0} : turns_[k];
        const Complex bin = even + times(turn, odd);
        magnitudes[k] = std::sqrt(bin.real() * bin.real() + bin.imag() * bin.imag());
    }
}

MelBands::MelBands() {
    std::array<double, kMelBands + 2> corners{};
    const double highest = mel_of(kSoundRate / 2.0);
    for (std::uint32_t i = 0; i < corners.size(); ++i) corners[i] = hertz_of(highest * i / (kMelBands + 1));
    for (std::uint32_t band = 0; band < kMelBands; ++band) {
        Filter& filter = filters_[band];
        const double low = corners[band], top = corners[band + 1], high = corners[band + 2];
        for (std::uint32_t bin = 0; bin < kSpectrumBins; ++bin) {
            const double hertz = static_cast<double>(bin) * kSoundRate / kShortWindow;
            const double weight = std::min((hertz - low) / (top - low), (high - hertz) / (high - top));
            if (weight <= 0) continue;
            if (filter.weights.empty()) filter.first = bin;
            filter.weights.push_back(weight);
        }
    }
}

void MelBands::of_window(std::span<const float, kShortWindow> samples, std::span<double, kMelBands> decibels) const {
    std::array<double, kSpectrumBins> magnitudes;
    spectrum_.of(samples, magnitudes);
    for (std::uint32_t band = 0; band < kMelBands; ++band) {
        const Filter& filter = filters_[band];
        double sum = 0;
        for (std::size_t i = 0; i < filter.weights.size(); ++i) sum += filter.weights[i] * magnitudes[filter.first + i];
        decibels[band] = 20 * std::log10(std::max(sum, kLeastMagnitude));
    }
}

void MelBands::of_recording(std::span<const float, kSoundSamples> samples,
                            std::span<std::uint16_t, kRecordingMels> decibels) const {
    std::array<double, kMelBands> bands;
    for (std::uint32_t window = 0; window < kLongs * kShorts; ++window) {
        of_window(samples.subspan(std::size_t{window} * kShortWindow).first<kShortWindow>(), bands);
        std::ranges::transform(bands, decibels.begin() + std::ptrdiff_t{window} * kMelBands,
                               [](double value) { return base::to_half(static_cast<float>(value)); });
    }
}

}  // namespace millrace::data
