#include "data/sound/sound_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/sound/resample.h"
#include "io/checksum.h"
#include "io/sound_file.h"

namespace millrace::data {
namespace {

constexpr double kSecondsRead = kSoundSeconds + 1;  // what the last samples are interpolated from lies within

/// Another sum when a file was added, removed, renamed or written to.
std::string checksum_of(const std::vector<ClassFile>& files) {
    std::string listed;
    for (const ClassFile& file : files) listed += fmt::format("{}\n{} {} {}\n", file.name, file.label, file.bytes, file.modified);
    io::Checksum64 sum;
    sum.update(io::bytes_of(listed));
    return fmt::format("{:016x}", sum.value());
}

}  // namespace

Result<Fit> read_recording(const Path& path, Resamplers& resamplers, std::span<float, kSoundSamples> samples, bool repeat) {
    MILLRACE_LET(sound, io::read_sound(path, kSecondsRead));
    const auto resampler = resamplers.from(sound.rate);
    const std::vector<float> resampled = resampler->resample(sound.samples, kSoundSamples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const bool within = i < resampled.size();
        samples[i] = within ? resampled[i] : repeat && !resampled.empty() ? samples[i - resampled.size()] : 0.0f;
    }
    const std::uint64_t whole = resampler->length(std::max<std::uint64_t>(sound.frames, sound.samples.size()));
    return whole < kSoundSamples ? Fit::padded : whole > kSoundSamples ? Fit::cut : Fit::exact;
}

Result<SoundSource> sound_source(const Path& root, bool repeat) {
    if (!io::can_read_sound()) return io::read_sound(root).error();
    MILLRACE_LET(found, find_class_files(root, kSoundEndings));
    if (found.files.empty())
        return Error{
            fmt::format("holds no recording ({} skipped, {} of other kinds); folders named by class with WAV or FLAC files in "
                        "them would be right: LEAK/a.wav, NORMAL/b.wav{}",
                        found.skipped.size(), found.others,
                        found.skipped.empty() ? "" : fmt::format("\n  {}: {}", found.skipped[0].name, found.skipped[0].reason)),
            root.string()};
    SoundSource source;
    source.classes = found.classes;
    source.skipped = found.skipped;
    source.repeat = repeat;
    nlohmann::ordered_json identity{{"recordings", found.files.size()}, {"checksum", checksum_of(found.files)}};
    if (repeat) identity["repeat"] = true;
    source.identity = base::json_text(identity);
    for (const ClassFile& file : found.files) source.items.push_back({file.name, file.label});
    auto files = std::make_shared<const std::vector<ClassFile>>(std::move(found.files));
    auto resamplers = std::make_shared<Resamplers>(kSoundRate);
    source.read = [files, resamplers, repeat](std::size_t i, std::span<float, kSoundSamples> samples) {
        return read_recording((*files)[i].path, *resamplers, samples, repeat);
    };
    return source;
}

}  // namespace millrace::data
