#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input is a sound file.
// Whatever its bytes are, samples or an error come out, the same ones twice. Samples are finite, no more than were asked for, and
// the beginning of a recording is the same whether more of it is read or not.

#include <algorithm>
#include <cmath>
#include <string_view>

#include "io/sound_file.h"

namespace millrace::fuzz {

inline constexpr double kFuzzedSeconds = 0.02;  ///< few bytes of FLAC may stand for hours

inline void check_sound(const io::Sound& sound, double seconds) {
    MILLRACE_ASSERT(sound.rate >= io::kLeastRate && sound.rate <= io::kMostRate && sound.channels > 0, "an absurd header");
    MILLRACE_ASSERT(!sound.samples.empty(), "a recording without samples");
    MILLRACE_ASSERT(static_cast<double>(sound.samples.size()) <= std::ceil(seconds * sound.rate), "more than was asked for");
    MILLRACE_ASSERT(sound.frames == 0 || sound.samples.size() <= sound.frames, "more than the header says");
    MILLRACE_ASSERT(std::ranges::all_of(sound.samples, [](float sample) { return std::isfinite(sample); }), "no number");
}

/// `path` is this input's alone; it is left with its file.
inline void read_sound_bytes(std::string_view bytes, const io::Path& path) {
    const auto written = io::write_atomically(path, bytes);
    MILLRACE_ASSERT(written.ok(), written.ok() ? "" : written.error().text());
    const auto sound = io::read_sound(path, kFuzzedSeconds), again = io::read_sound(path, kFuzzedSeconds);
    MILLRACE_ASSERT(sound.ok() == again.ok(), "the same file is sound once and once not");
    if (!sound.ok()) {
        MILLRACE_ASSERT(!sound.error().message.empty() && sound.error().place == path.string(),
                        "an error without reason or place");
        return;
    }
    check_sound(*sound, kFuzzedSeconds);
    MILLRACE_ASSERT(sound->samples == again->samples, "the same file has other samples the second time");
    const auto begin = io::read_sound(path, kFuzzedSeconds / 4);
    MILLRACE_ASSERT(begin.ok(), "the beginning of a sound file is not");
    check_sound(*begin, kFuzzedSeconds / 4);
    MILLRACE_ASSERT(begin->samples.size() <= sound->samples.size() &&
                        std::equal(begin->samples.begin(), begin->samples.end(), sound->samples.begin()),
                    "the beginning differs");
}

}  // namespace millrace::fuzz
