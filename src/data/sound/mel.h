#pragma once
// Mel bands of windows of sound: the Hann magnitude spectrum through triangular filters, in decibels. As torchaudio's
// MelSpectrogram with n_fft 512, n_mels 64, mel_scale "htk", norm None, power 1, center False, one frame, then
// amplitude_to_DB(20, 1e-10).

#include <array>
#include <cstdint>
#include <span>

namespace millrace::data {

inline constexpr std::uint32_t kSoundRate = 4096;  ///< Hz
inline constexpr std::uint32_t kSoundSeconds = 10;
inline constexpr std::uint32_t kSoundSamples = kSoundRate * kSoundSeconds;
inline constexpr std::uint32_t kShortWindow = 512, kLongWindow = 1024;           ///< samples; neither overlaps
inline constexpr std::uint32_t kShorts = kLongWindow / kShortWindow;             ///< in a long window: 2
inline constexpr std::uint32_t kLongs = kSoundSamples / kLongWindow;             ///< in a recording: 40
inline constexpr std::uint32_t kMelBands = 64, kMelBins = kShortWindow / 2 + 1;  ///< bins |X_0| to |X_256|
inline constexpr std::uint32_t kRecordingMels = kLongs * kShorts * kMelBands;
inline constexpr double kLeastMagnitude = 1e-10;  ///< silence is -200 dB

/// What every computation of bands reads.
template <class T>
struct MelTables {
    static constexpr int kHalf = kShortWindow / 2;     ///< 512 real numbers are transformed as 256 complex ones
    std::array<T, kShortWindow> window{};              ///< periodic Hann
    std::array<T, kHalf> cosine{}, sine{};             ///< exp(-2 pi i k / 512) = cosine + i sine
    std::array<std::uint8_t, kHalf> reversed{};        ///< bits of an index backwards
    std::array<std::uint16_t, kMelBands> first{};      ///< bin of a band
    std::array<std::uint16_t, kMelBands + 1> begin{};  ///< of a band's weights, which are those of its bins from the first on
    std::array<T, 2 * kMelBins> weights{};             ///< no bin lies in more than two triangles
};
/// Of float or double; made once, thread safe.
template <class T>
const MelTables<T>& mel_tables();

/// One window on this thread. T is float or double, Sample too and no wider.
template <class T, class Sample>
void mel_bands_of(std::span<const Sample, kShortWindow> samples, std::span<T, kMelBands> decibels);

/// Decibels per band of one recording, computed in f64, as f16: [kLongs, kShorts, kMelBands]. Thread safe.
void mels_of_recording(std::span<const float, kSoundSamples> samples, std::span<std::uint16_t, kRecordingMels> decibels);

}  // namespace millrace::data
