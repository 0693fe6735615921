#pragma once
// Recordings in class folders as the source of a set.

#include "data/sound/resample.h"
#include "data/sound/sound_set.h"

namespace millrace::data {

/// One file at kSoundRate: resampled, padded with silence or cut to 10 s. From several threads at once.
Result<Fit> read_recording(const Path& path, Resamplers& resamplers, std::span<float, kSoundSamples> samples);

/// What find_recordings() gives. Items are read from their files when they are asked for: resampled to kSoundRate, padded with
/// silence or cut to 10 s. Errors where there is no recording at all, and in a build that reads none.
Result<SoundSource> sound_source(const Path& root);

}  // namespace millrace::data
