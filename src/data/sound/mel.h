#pragma once
// Mel bands of one short window: the Hann magnitude spectrum through triangular filters, in decibels. As torchaudio's
// MelSpectrogram with mel_scale "htk", norm None, power 1, center False, one frame, then amplitude_to_DB(20, 1e-10).

#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::data {

inline constexpr std::uint32_t kSoundRate = 4096;  ///< Hz
inline constexpr std::uint32_t kSoundSeconds = 10;
inline constexpr std::uint32_t kSoundSamples = kSoundRate * kSoundSeconds;
inline constexpr std::uint32_t kShortWindow = 512, kLongWindow = 1024;  ///< samples; neither overlaps
inline constexpr std::uint32_t kShorts = kLongWindow / kShortWindow;    ///< in a long window: 2
inline constexpr std::uint32_t kLongs = kSoundSamples / kLongWindow;    ///< in a recording: 40
inline constexpr std::uint32_t kMelBands = 64, kSpectrumBins = kShortWindow / 2 + 1;
inline constexpr std::uint32_t kRecordingMels = kLongs * kShorts * kMelBands;
inline constexpr double kLeastMagnitude = 1e-10;  ///< silence is -200 dB

/// The magnitudes |X_0| to |X_256| of 512 samples through a periodic Hann window. Tables are made once; thread safe.
class MagnitudeSpectrum {
public:
    MagnitudeSpectrum();
    void of(std::span<const float, kShortWindow> samples, std::span<double, kSpectrumBins> magnitudes) const;

private:
    static constexpr std::uint32_t kHalf = kShortWindow / 2;  ///< 512 real numbers are transformed as 256 complex ones
    std::array<double, kShortWindow> window_{};
    std::array<std::complex<double>, kHalf> turns_{};  ///< exp(-2 pi i k / 512)
    std::array<std::uint8_t, kHalf> reversed_{};       ///< bits of an index backwards
};

/// Decibels per band of one recording: [kLongs, kShorts, kMelBands] from kSoundSamples samples. Thread safe.
class MelBands {
public:
    MelBands();
    void of_window(std::span<const float, kShortWindow> samples, std::span<double, kMelBands> decibels) const;
    /// As f16.
    void of_recording(std::span<const float, kSoundSamples> samples, std::span<std::uint16_t, kRecordingMels> decibels) const;

private:
    struct Filter {
        std::uint32_t first = 0;      ///< bin
        std::vector<double> weights;  ///< of the bins from there on
    };
    MagnitudeSpectrum spectrum_;
    std::array<Filter, kMelBands> filters_;
};

}  // namespace millrace::data
