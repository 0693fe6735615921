#pragma once
// The files of a set of recordings: HDF5 per part, and the list of what stands where.

#include "data/sound/transform.h"

namespace millrace::data {

/// Mean and deviation per band.
struct BandStatistics {
    std::array<float, kMelBands> mean{}, deviation{};
};
/// Over the recordings at `rows` of `all`.
BandStatistics measure_bands(const TransformedRecordings& all, std::span<const std::uint32_t> rows);

/// What the files of a set say about themselves.
struct SoundSetTexts {
    std::string config, labels, label2id, created;  ///< JSON, JSON, JSON, ISO 8601
};

/// Writes one part: the recordings at `rows` of `all`, in that order, with `labels` by row of `all`.
Status write_sound_part(const Path& path, const SoundSource& source, const TransformedRecordings& all,
                        std::span<const std::uint32_t> rows, std::span<const std::int16_t> labels, const BandStatistics& bands,
                        const SoundSetTexts& texts, const SoundSetOptions& options, StopRequests& stop);

/// recordings.csv: path, class, split, row, note.
std::string recording_list(const SoundSource& source, const TransformedRecordings& all,
                           std::span<const std::vector<std::uint32_t>, kSoundParts> parts);

}  // namespace millrace::data
