#pragma once
// Mel bands of windows of sound: the Hann magnitude spectrum through triangular filters, in decibels. As torchaudio's
// MelSpectrogram with n_fft 512, n_mels 64, mel_scale "htk", norm None, power 1, center False, one frame, then
// amplitude_to_DB(20, 1e-10). Conventions: ops/op.h.

#include <array>
#include <cstdint>
#include <span>

#include "ops/op.h"

namespace millrace::ops {

inline constexpr int kMelRate = 4096;                                                  ///< Hz
inline constexpr int kMelWindow = 512, kMelBins = kMelWindow / 2 + 1, kMelBands = 64;  ///< samples, |X_0| to |X_256|, bands
inline constexpr double kLeastMagnitude = 1e-10;                                       ///< silence is -200 dB

/// mel_bands. y = 20 log10(max(m, kLeastMagnitude)) for the 64 bands m of each window of 512 samples. Computed in stat: a bin's
/// error is about 1e-7 of the largest bin, so that f32 does not see bands 120 dB below the loudest.
/// Slots: x stat [K,1,B,512], y stat or f16 [K,1,B,64] (row strides free).
struct MelBandsParams {};
namespace mel_bands {
enum Slot { x, y, slots };
extern const OpDef kDef;
}  // namespace mel_bands

/// What all of them compute with.
template <class T>
struct MelTables {
    static constexpr int kHalf = kMelWindow / 2;       ///< 512 real numbers are transformed as 256 complex ones
    std::array<T, kMelWindow> window{};                ///< periodic Hann
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
void mel_bands_of(std::span<const Sample, kMelWindow> samples, std::span<T, kMelBands> decibels);

}  // namespace millrace::ops
