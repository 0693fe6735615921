#pragma once
// The built-in data sets that `millrace data make` writes, by name.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/command.h"
#include "data/folder.h"
#include "data/images/garments.h"
#include "data/sound/sound_set.h"

namespace millrace::data {

struct Maker {
    std::string name, meaning;
    CommandOptions options;
    /// Writes the set into `folder`, or finds it there; gives a line about it for people.
    std::function<base::Result<std::string>(const std::string& folder, std::uint64_t seed, const CommandOptions& options,
                                            const CommandProgress& progress)>
        make;
};

std::vector<Maker> makers();
constexpr std::uint64_t kMakerSeed = 42;

struct GarmentsOptions {
    std::uint32_t train = 60'000;
    std::uint32_t test = 10'000;
    std::uint64_t seed = kGarmentSeed;
};

/// Writes the four IDX files of the garments set and dataset.json into `folder` (created when missing), each atomically,
/// dataset.json last. A folder that holds exactly this set already is left alone; one that holds any of these names with other
/// content (a downloaded set, another seed) is refused.
Result<MakeOutcome> make_garments(const Path& folder, const GarmentsOptions& options = {}, const CommandProgress& progress = {});

struct PairsOptions {
    std::uint32_t count = 5000;  ///< 1 to sentence_pair_limit()
    std::uint64_t seed = 42;
    std::uint32_t dimensions = 768;  ///< 1 to kMostDimensions
};

/// Writes pairs.safetensors, pairs.jsonl and dataset.json into `folder` (created when missing), each atomically, dataset.json
/// last: pairs 0 to count - 1 of the sentence grammar with the vectors of the hashed teacher. A folder that holds exactly this
/// set already is left alone; one that holds any of these names with other content is refused.
Result<MakeOutcome> make_pairs(const Path& folder, const PairsOptions& options = {});

struct HydrophoneOptions {
    std::uint32_t files = 2000;  ///< of all classes together
    std::uint64_t seed = 42;
    double gain = 0;      ///< dB, -200 to 0
    bool binary = false;  ///< labels NOLEAK and LEAK
    bool waveform = false;
    int threads = 0;  ///< 0: one per processor
};

SoundSource hydrophone_source(const HydrophoneOptions& options);

/// As make_sound_set() with shares of 0.7, 0.2 and 0.1.
Result<SoundSetReport> make_hydrophone(const Path& folder, const HydrophoneOptions& options,
                                       const CommandProgress& progress = {});

/// Writes CLASS/CLASS-00000.wav and so on and dataset.json, all of them or nothing, 16-bit at a gain of 0 and f32 otherwise. A
/// folder that holds this very set is left alone; one that holds any of these names otherwise is refused.
Result<MakeOutcome> make_hydrophone_wav(const Path& folder, const HydrophoneOptions& options,
                                        const CommandProgress& progress = {});

inline constexpr std::uint32_t kMostMadeWords = 2500000;  ///< the grammar has sentences for no more

struct TextOptions {
    std::uint32_t words = 200000;  ///< of train.txt, 1 to kMostMadeWords or a line more; valid.txt and test.txt have a tenth each
    std::uint64_t seed = 42;
};

/// Writes train.txt, valid.txt and test.txt into `folder` (created when missing), each atomically. A line is a pair of the
/// sentence grammar: a statement and the consequence that follows from it word by word. No two lines of the set are equal. Marks
/// stand apart from words. A folder that holds exactly this text already is left alone; one that holds another is refused.
Result<MakeOutcome> make_text(const Path& folder, const TextOptions& options = {});

}  // namespace millrace::data
