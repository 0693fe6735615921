#include "data/sound/mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "base/half.h"

namespace millrace::data {
namespace {

double mel_of(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double hertz_of(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

template <class T>
void add_filters(MelTables<T>& tables) {
    std::array<double, kMelBands + 2> corners{};
    const double highest = mel_of(kSoundRate / 2.0);
    for (std::size_t i = 0; i < corners.size(); ++i) corners[i] = hertz_of(highest * static_cast<double>(i) / (kMelBands + 1));
    std::size_t weights = 0;
    for (std::size_t band = 0; band < kMelBands; ++band) {
        const double low = corners[band], top = corners[band + 1], high = corners[band + 2];
        for (std::uint32_t bin = 0; bin < kMelBins; ++bin) {
            const double hertz = static_cast<double>(bin) * kSoundRate / kShortWindow;
            const double weight = std::min((hertz - low) / (top - low), (high - hertz) / (high - top));
            if (weight <= 0) continue;
            if (weights == tables.begin[band]) tables.first[band] = static_cast<std::uint16_t>(bin);
            tables.weights[weights++] = static_cast<T>(weight);
        }
        tables.begin[band + 1] = static_cast<std::uint16_t>(weights);
    }
}

template <class T>
MelTables<T> make_tables() {
    using Tables = MelTables<T>;
    Tables tables;
    constexpr double turn = 2 * std::numbers::pi / kShortWindow;
    for (std::size_t n = 0; n < kShortWindow; ++n)
        tables.window[n] = static_cast<T>(0.5 - 0.5 * std::cos(turn * static_cast<double>(n)));
    for (std::size_t k = 0; k < Tables::kHalf; ++k) {
        tables.cosine[k] = static_cast<T>(std::cos(turn * static_cast<double>(k)));
        tables.sine[k] = static_cast<T>(-std::sin(turn * static_cast<double>(k)));
        std::size_t backwards = 0;
        for (std::size_t bit = 1, value = k; bit < Tables::kHalf; bit *= 2, value /= 2) backwards = backwards * 2 + value % 2;
        tables.reversed[k] = static_cast<std::uint8_t>(backwards);
    }
    add_filters(tables);
    return tables;
}

template <class T>
std::complex<T> times(std::complex<T> a, std::complex<T> b) {  // std::complex looks after infinities, which costs a call
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// |X_0| to |X_256| of the samples through the window.
template <class T, class Sample>
void magnitudes_of(const MelTables<T>& tables, std::span<const Sample, kShortWindow> samples, std::span<T, kMelBins> magnitudes) {
    using Complex = std::complex<T>;
    constexpr std::size_t half = MelTables<T>::kHalf;
    const auto turn = [&](std::size_t k) { return Complex{tables.cosine[k], tables.sine[k]}; };
    std::array<Complex, half> z;
    for (std::size_t i = 0; i < half; ++i) {
        const std::size_t even = std::size_t{2} * tables.reversed[i];
        z[i] = {static_cast<T>(samples[even]) * tables.window[even], static_cast<T>(samples[even + 1]) * tables.window[even + 1]};
    }
    for (std::size_t size = 2; size <= half; size *= 2)
        for (std::size_t start = 0; start < half; start += size)
            for (std::size_t k = 0; k < size / 2; ++k) {
                const Complex low = z[start + k], high = times(turn(k * (kShortWindow / size)), z[start + k + size / 2]);
                z[start + k] = low + high;
                z[start + k + size / 2] = low - high;
            }
    // The even samples' spectrum is the part of z that is symmetric as spectra of real numbers are, the odd ones' the rest.
    for (std::size_t k = 0; k < kMelBins; ++k) {
        const Complex here = z[k % half], mirrored = std::conj(z[(half - k) % half]);
        const Complex even = T{0.5} * (here + mirrored), odd = times(Complex{0, T{-0.5}}, here - mirrored);
        const Complex bin = even + times(k == half ? Complex{-1, 0} : turn(k), odd);
        magnitudes[k] = std::sqrt(bin.real() * bin.real() + bin.imag() * bin.imag());
    }
}

}  // namespace

template <class T>
const MelTables<T>& mel_tables() {
    static const MelTables<T> tables = make_tables<T>();
    return tables;
}
template const MelTables<float>& mel_tables();
template const MelTables<double>& mel_tables();

template <class T, class Sample>
void mel_bands_of(std::span<const Sample, kShortWindow> samples, std::span<T, kMelBands> decibels) {
    const MelTables<T>& tables = mel_tables<T>();
    std::array<T, kMelBins> magnitudes;
    magnitudes_of<T, Sample>(tables, samples, magnitudes);
    for (std::size_t band = 0; band < kMelBands; ++band) {
        T sum = 0;
        for (std::size_t i = tables.begin[band]; i < tables.begin[band + 1]; ++i)
            sum += tables.weights[i] * magnitudes[tables.first[band] + i - tables.begin[band]];
        decibels[band] = 20 * std::log10(std::max(sum, static_cast<T>(kLeastMagnitude)));
    }
}
template void mel_bands_of(std::span<const float, kShortWindow>, std::span<float, kMelBands>);
template void mel_bands_of(std::span<const float, kShortWindow>, std::span<double, kMelBands>);
template void mel_bands_of(std::span<const double, kShortWindow>, std::span<double, kMelBands>);

void mels_of_recording(std::span<const float, kSoundSamples> samples, std::span<std::uint16_t, kRecordingMels> decibels) {
    std::array<double, kMelBands> bands;
    for (std::uint32_t window = 0; window < kLongs * kShorts; ++window) {
        mel_bands_of<double, float>(samples.subspan(std::size_t{window} * kShortWindow).first<kShortWindow>(), bands);
        std::ranges::transform(bands, decibels.begin() + std::ptrdiff_t{window} * kMelBands,
                               [](double value) { return base::to_half(static_cast<float>(value)); });
    }
}

}  // namespace millrace::data
