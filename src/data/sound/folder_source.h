#pragma once
// Recordings in class folders as the source of a set.

#include <array>
#include <string_view>

#include "data/sound/resample.h"
#include "data/sound/sound_set.h"

namespace millrace::data {

inline constexpr std::array<std::string_view, 2> kSoundEndings{".wav", ".flac"};

/// One file at kSoundRate: resampled, cut to 10 s or padded with silence, with `repeat` with itself again and again. From several
/// threads at once.
Result<Fit> read_recording(const Path& path, Resamplers& resamplers, std::span<float, kSoundSamples> samples, bool repeat);

/// What find_class_files() gives. Items are read from their files by read_recording() when they are asked for. Errors where there
/// is no recording at all, and in a build that reads none.
Result<SoundSource> sound_source(const Path& root, bool repeat = false);

}  // namespace millrace::data
