#pragma once
// Recordings: WAV and FLAC files of any rate, channel count and sample format, read as one channel of f32. A build without
// libsndfile reads none and says so.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "io/file.h"

namespace millrace::io {

inline constexpr std::uint32_t kLeastRate = 100, kMostRate = 1'000'000;    ///< Hz; others are taken for a lying header
inline constexpr std::uint64_t kMostSoundFrames = std::uint64_t{1} << 28;  ///< of one recording in memory: 1 GiB of f32

struct Sound {
    std::uint32_t rate = 0;      ///< Hz
    std::uint32_t channels = 0;  ///< of the file
    std::uint64_t frames = 0;    ///< of the file; 0 where its header does not say
    std::vector<float> samples;  ///< as many as were asked for, mean of the channels; whole numbers are scaled to [-1, 1)
};

/// False in a build without libsndfile.
bool can_read_sound();

/// The first `seconds` of a WAV or FLAC file, known by its content and not by its name. Refuses: other formats; headers that
/// claim more than the file holds, no channels or a rate outside [kLeastRate, kMostRate]; files that end early; no frames;
/// NaN or infinite samples; more than kMostSoundFrames to read. Memory grows with what was read, not with what a header claims.
Result<Sound> read_sound(const Path& path, double seconds = std::numeric_limits<double>::infinity());

enum class WavFormat : std::uint8_t { pcm16, f32 };

/// Writes one channel, replacing `path` as a whole. pcm16 rounds to 2^-15 and clips to [-1, 1). Refuses what a WAV file cannot
/// hold: 4 GiB. Needs no library.
Status write_wav(const Path& path, std::span<const float> samples, std::uint32_t rate, WavFormat format);

}  // namespace millrace::io
