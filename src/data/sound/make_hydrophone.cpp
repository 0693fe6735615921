#include "base/json.h"
#include "data/makers.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "data/sound/hydrophone.h"
#include "data/sound/transform.h"
#include "io/sound_file.h"
#include "io/staged_folder.h"

namespace millrace::data {
namespace {

Status check_options(const HydrophoneOptions& options) {
    constexpr std::uint32_t most = 10'000'000;
    if (options.files == 0 || options.files > most)
        return Error{fmt::format("--files {}; 1 to {} would be right", options.files, most)};
    if (!(options.gain >= -200 && options.gain <= 0))
        return Error{fmt::format("--gain {}; -200 to 0 dB would be right", options.gain)};
    if (options.threads < 0 || options.threads > 1024)
        return Error{fmt::format("--threads {}; 0 to 1024 would be right", options.threads)};
    return base::ok();
}

nlohmann::ordered_json wav_identity(const HydrophoneOptions& options) {
    return {{"generator", "hydrophone-1 wav"}, {"seed", options.seed}, {"files", options.files}, {"gain", options.gain}};
}

}  // namespace

SoundSource hydrophone_source(const HydrophoneOptions& options) {
    SoundSource source;
    source.classes.assign(kHydrophoneClasses.begin(), kHydrophoneClasses.end());
    const auto counts = hydrophone_counts(options.files);
    auto indices = std::make_shared<std::vector<std::uint32_t>>();
    for (std::uint32_t label = 0; label < counts.size(); ++label)
        for (std::uint32_t index = 0; index < counts[label]; ++index) {
            source.items.push_back({fmt::format("{0}/{0}-{1:05}.wav", kHydrophoneClasses[label], index), label});
            indices->push_back(index);
        }
    const auto labels = std::make_shared<const std::vector<SoundSource::Item>>(source.items);
    source.read = [indices, labels, seed = options.seed, gain = options.gain](
                      std::size_t i, std::span<float, kSoundSamples> samples) -> Result<Fit> {
        draw_recording(seed, (*labels)[i].label, (*indices)[i], gain, samples);
        return Fit::exact;
    };
    source.identity =
        base::json_text(nlohmann::ordered_json{{"generator", "hydrophone-1"}, {"files", options.files}, {"gain", options.gain}});
    return source;
}

Result<SoundSetReport> make_hydrophone(const Path& folder, const HydrophoneOptions& options, const CommandProgress& progress) {
    MILLRACE_TRY(check_options(options));
    SoundSetOptions set;
    set.seed = options.seed;
    set.positive = options.binary ? kHydrophoneClasses[kHydrophoneLeak] : "";
    set.waveform = options.waveform;
    set.threads = options.threads;
    return make_sound_set(folder, hydrophone_source(options), set, progress);
}

Result<MakeOutcome> make_hydrophone_wav(const Path& folder, const HydrophoneOptions& options, const CommandProgress& progress) {
    MILLRACE_TRY(check_options(options));
    if (options.binary || options.waveform)
        return Error{"--wav writes recordings of all classes: --binary and --waveform are not for it"};
    const nlohmann::ordered_json made = wav_identity(options);
    MILLRACE_TRY(io::StagedFolder::finish_publishing(folder, kDescription));
    std::error_code failure;
    if (std::filesystem::exists(folder / kDescription, failure)) {
        MILLRACE_LET(text, io::read_text(folder / kDescription));
        const auto json = base::ordered_json_from(text);
        if (!json.is_object() || json.value("made", nlohmann::ordered_json()) != made) return foreign_set(folder / kDescription);
        return MakeOutcome::kAlreadyThere;
    }
    for (const char* name : kHydrophoneClasses)
        if (std::filesystem::exists(folder / name, failure)) return foreign_set(folder / name);

    StopRequests stop;
    MILLRACE_LET(staged, io::StagedFolder::begin(folder));
    const SoundSource source = hydrophone_source(options);
    for (const std::string& name : source.classes) std::filesystem::create_directory(staged.inside() / name, failure);
    const auto format = options.gain == 0 ? io::WavFormat::pcm16 : io::WavFormat::f32;
    const auto write = [&](std::uint32_t i) -> Status {
        std::vector<float> samples(kSoundSamples);
        MILLRACE_TRY(source.read(i, std::span<float, kSoundSamples>(samples)));
        return io::write_wav(staged.inside() / source.items[i].name, samples, kSoundRate, format);
    };
    MILLRACE_TRY(for_all_items(static_cast<std::uint32_t>(source.items.size()), options.threads, stop, progress, write));
    const nlohmann::ordered_json description{{"name", folder_name(folder)}, {"classes", source.classes}, {"made", made}};
    MILLRACE_TRY(io::write_atomically(staged.inside() / kDescription, base::json_text(description, 2) + "\n"));
    if (stop.asked()) return stop.error();
    MILLRACE_TRY(staged.publish(kDescription));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
