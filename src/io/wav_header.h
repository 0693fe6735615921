#pragma once
// What libsndfile passes over in silence: whether the chunks of a WAV file lie inside it.

#include <cstdint>

#include "io/file.h"

namespace millrace::io {

enum class SoundKind : std::uint8_t { wav, flac };

/// By the first bytes; anything else is an error.
Result<SoundKind> sound_kind(const RegularFile& opened, const Path& place);

/// Walks the chunks of a WAV file. An error when the fmt or data chunk is missing, reaches beyond the end of the file, or says no
/// channels, no bits or an absurd rate. A length of 0xFFFFFFFF, which programs write into a pipe, means "to the end".
Status check_wav(const RegularFile& opened, const Path& place);

}  // namespace millrace::io
