#pragma once
// A set of recordings as mel windows: TRAINING_DATASET.H5, VALIDATION_DATASET.H5 and TESTING_DATASET.H5 in one folder. Each holds
//   segments_mel       [F, 40, 2, 64, 1] f16  decibels per recording, long window, short window and band
//   segments_waveform  [F, 40, 2, 512] f32    the samples themselves, where they were asked for
//   labels             [F] i16
//   mel_mean, mel_std  [64] f32               per band, of the training part, in all three files; mel_std is at least 0.001
// and the texts config_json, labels_json (names by label), label2id_json and created_at_utc as attributes. Beside them lie
// recordings.csv (which recording stands where, and what was skipped why) and dataset.json.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/class_folders.h"
#include "data/command.h"
#include "data/folder.h"
#include "data/recordings/files.h"
#include "data/sound/mel.h"
#include "data/sound/split_recordings.h"

namespace millrace::data {

static_assert(kRecordingFiles.size() == kSoundParts);
inline constexpr const char* kRecordingList = "recordings.csv";

/// How a recording came to its 10 s.
enum class Fit : std::uint8_t { exact, padded, cut };

/// Recordings to make a set of.
struct SoundSource {
    struct Item {
        std::string name;
        std::uint32_t label = 0;  ///< in `classes`
    };
    std::vector<std::string> classes;
    std::vector<Item> items;
    std::vector<SkippedFile> skipped = {};  ///< that are no items, for the list
    /// Fills in item `i` at kSoundRate. From several threads at once. An error skips the item.
    std::function<Result<Fit>(std::size_t i, std::span<float, kSoundSamples> samples)> read;
    std::string identity;  ///< JSON: what the items are a function of
    bool repeat = false;   ///< short recordings are repeated; else padded with silence
};

struct SoundSetOptions {
    Shares shares{0.7, 0.2, 0.1};
    std::uint64_t seed = 42;
    std::string positive = {};  ///< label 1 is this class and 0 all others; empty: a label per class
    bool waveform = false;
    int threads = 0;  ///< 0: one per processor
};

struct SoundSetReport {
    MakeOutcome outcome = MakeOutcome::kWritten;
    std::array<std::uint64_t, kSoundParts> counts{};
    std::vector<std::string> classes;  ///< names by label
    std::vector<SkippedFile> skipped;
    std::uint64_t padded = 0, cut = 0;
    bool repeated = false;
};

/// Reads and transforms the items, splits them, and writes the set into `folder` as a whole: until then nothing there changes. A
/// folder that holds this very set is left alone; one that holds any of the set's names otherwise is refused. The rows do not
/// depend on the number of threads. SIGINT, SIGTERM and SIGHUP end it with the exit status 128 + n and nothing written. A part
/// without a share has no file; a part with one that would stay empty, a class without a readable recording and fewer than two
/// classes are refused. Memory: 10 KiB per recording.
Result<SoundSetReport> make_sound_set(const Path& folder, const SoundSource& source, const SoundSetOptions& options,
                                      const CommandProgress& progress = {});

/// For people: what was written, padded, cut and skipped.
std::string summary_of(const Path& folder, const SoundSetReport& report);

}  // namespace millrace::data
