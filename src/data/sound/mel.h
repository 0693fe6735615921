#pragma once
// Mel bands of whole recordings, in f64 (ops/sound/mel.h).

#include <cstdint>
#include <span>

#include "ops/sound/mel.h"

namespace millrace::data {

inline constexpr std::uint32_t kSoundRate = ops::kMelRate;  ///< Hz
inline constexpr std::uint32_t kSoundSeconds = 10;
inline constexpr std::uint32_t kSoundSamples = kSoundRate * kSoundSeconds;
inline constexpr std::uint32_t kShortWindow = ops::kMelWindow, kLongWindow = 1024;  ///< samples; neither overlaps
inline constexpr std::uint32_t kShorts = kLongWindow / kShortWindow;                ///< in a long window: 2
inline constexpr std::uint32_t kLongs = kSoundSamples / kLongWindow;                ///< in a recording: 40
inline constexpr std::uint32_t kMelBands = ops::kMelBands;
inline constexpr std::uint32_t kRecordingMels = kLongs * kShorts * kMelBands;

/// Decibels per band of one recording as f16: [kLongs, kShorts, kMelBands]. Thread safe.
void mels_of_recording(std::span<const float, kSoundSamples> samples, std::span<std::uint16_t, kRecordingMels> decibels);

}  // namespace millrace::data
