#pragma once
// A set of recordings as mel windows: TRAINING_DATASET.H5, VALIDATION_DATASET.H5 and TESTING_DATASET.H5 in one folder. Each holds
//   segments_mel       [F, 40, 2, 64, 1] f16  decibels per recording, long window, short window and band
//   segments_waveform  [F, 40, 2, 512] f32    the samples themselves, where they were asked for
//   labels             [F] i16
//   mel_mean, mel_std  [64] f32               per band, of the training part, in all three files; mel_std is at least 0.001
// and the texts config_json, labels_json (names by label), label2id_json and created_at_utc as attributes. Beside them lie
// recordings.csv (which recording stands where, and what was skipped why) and dataset.json.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/signal_queue.h"
#include "data/command.h"
#include "data/folder.h"
#include "data/sound/mel.h"
#include "data/sound/resample.h"

namespace millrace::data {

inline constexpr std::size_t kSoundParts = 3;  ///< training, validation, test
using Shares = std::array<double, kSoundParts>;

/// "0.7,0.2,0.1": three numbers of sum 1, none negative, the first positive.
base::Result<Shares> parse_shares(const std::string& text);

/// How many of `count` recordings of one class each part gets: the shares by largest remainder. As long as there are recordings,
/// no part with a share stays empty; training comes first, then validation.
std::array<std::uint32_t, kSoundParts> share_out(std::uint32_t count, const Shares& shares);

/// The recordings (positions in `labels`) of each part in a random order that mixes the classes. Depends on the labels, the
/// shares and the seed alone.
std::array<std::vector<std::uint32_t>, kSoundParts> split_recordings(std::span<const std::uint32_t> labels, std::uint32_t classes,
                                                                     const Shares& shares, std::uint64_t seed);

/// Which recordings train, select and test: whole recordings, never windows of them, and of every class its share.
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

inline constexpr std::array<std::string_view, 2> kSoundEndings{".wav", ".flac"};

/// One file at kSoundRate: resampled, cut to 10 s or padded with silence, with `repeat` with itself again and again. From several
/// threads at once.
Result<Fit> read_recording(const Path& path, Resamplers& resamplers, std::span<float, kSoundSamples> samples, bool repeat);

/// What find_class_files() gives. Items are read from their files by read_recording() when they are asked for. Errors where there
/// is no recording at all, and in a build that reads none.
Result<SoundSource> sound_source(const Path& root, bool repeat = false);

/// Takes SIGINT, SIGTERM and SIGHUP for as long as it lives. Make it before other threads start.
class StopRequests {
public:
    StopRequests();
    /// Whether the process was asked to stop. From any thread; does not wait.
    bool asked();
    /// What ends the command then.
    [[nodiscard]] Error error() const;

private:
    base::SignalQueue queue_;
    std::mutex lock_;
    std::atomic<int> signal_{0};
};

/// Calls body(i) for every i in [0, count) on so many threads (0: one per processor), until it is asked to stop or one fails;
/// gives one of the errors then. `progress` is told how many are done.
Status for_all_items(std::uint32_t count, int threads, StopRequests& stop, const CommandProgress& progress,
                     const std::function<Status(std::uint32_t)>& body);

/// The items of a source that could be read, in their order.
struct TransformedRecordings {
    std::vector<std::uint32_t> items;  ///< [n], positions in the source
    std::vector<std::uint16_t> mels;   ///< [n, kRecordingMels] f16
    std::vector<SkippedFile> skipped;
    std::uint64_t padded = 0, cut = 0;
};
Result<TransformedRecordings> transform_recordings(const SoundSource& source, int threads, StopRequests& stop,
                                                   const CommandProgress& progress);

/// The samples of some items, [items, kSoundSamples]. An item that cannot be read now is an error: it could before.
Result<std::vector<float>> read_samples(const SoundSource& source, std::span<const std::uint32_t> items, int threads,
                                        StopRequests& stop);

/// Mean and deviation per band.
struct BandStatistics {
    std::array<float, kMelBands> mean{}, deviation{};
};
/// Over the recordings at `rows` of `all`.
BandStatistics measure_bands(const TransformedRecordings& all, std::span<const std::uint32_t> rows);

/// What the files of a set say about themselves: attributes by name.
using SoundSetTexts = std::vector<std::pair<const char*, std::string>>;

/// Writes one part: the recordings at `rows` of `all`, in that order, with `labels` by row of `all`.
Status write_sound_part(const Path& path, const SoundSource& source, const TransformedRecordings& all,
                        std::span<const std::uint32_t> rows, std::span<const std::int16_t> labels, const BandStatistics& bands,
                        const SoundSetTexts& texts, const SoundSetOptions& options, StopRequests& stop);

/// recordings.csv: path, class, split, row, note.
std::string recording_list(const SoundSource& source, const TransformedRecordings& all,
                           std::span<const std::vector<std::uint32_t>, kSoundParts> parts);

}  // namespace millrace::data
