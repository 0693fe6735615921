#pragma once
// Hydrophone: a procedural stand-in for recordings of water pipes, five classes of 10 s at 4096 Hz. A recording is a pure
// function of (seed, class, index), so the set needs no download and every machine makes the same one (to rounding).

#include <array>
#include <cstdint>
#include <span>

#include "data/sound/mel.h"

namespace millrace::data {

inline constexpr std::array<const char*, 5> kHydrophoneClasses{"BACKGROUND", "CRACK", "LEAK", "NORMAL", "UNCLASSIFIED"};
inline constexpr std::uint32_t kHydrophoneLeak = 2;
inline constexpr double kHydrophoneLeakShare = 0.435;  ///< the other classes share the rest equally

/// Recordings per class of a set of `files`: the shares, rounded, and their sum is `files`.
std::array<std::uint32_t, kHydrophoneClasses.size()> hydrophone_counts(std::uint32_t files);

/// Recording `index` of a class. Its peak is 0.9, times 10^(gain / 20). All classes have the ambient noise of a pipe; to it come
///   BACKGROUND nothing; CRACK short rings; LEAK the noise of a resonance, now and then with a hum or clicks; NORMAL a deep hum;
///   UNCLASSIFIED a higher hum, gated noise of a band, or two clicks with a rich hum.
void draw_recording(std::uint64_t seed, std::uint32_t label, std::uint32_t index, double gain,
                    std::span<float, kSoundSamples> samples);

}  // namespace millrace::data
