#pragma once
// Writing the built-in recordings, as a set of mel windows or as WAV files: what `millrace data make hydrophone` does.

#include "data/sound/sound_set.h"

namespace millrace::data {

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

}  // namespace millrace::data
