#include "models/leak_cnn/recipe.h"

#include "base/log.h"
#include "data/makers.h"
#include "data/recordings/recording_set.h"
#include "data/sound/sound_set.h"

namespace millrace::models {
namespace {

constexpr std::size_t kNamed = 20;  // skipped recordings that are named; recordings.csv has all

enum Given : std::size_t { kFolder, kOut, kPositive, kSplit, kSeed, kThreads, kWaveform, kRepeat };

void name_skipped(const std::vector<data::SkippedFile>& skipped) {
    for (std::size_t i = 0; i < std::min(kNamed, skipped.size()); ++i)
        MILLRACE_LOG(warn, "skipped {}: {}", skipped[i].name, skipped[i].reason);
    if (skipped.size() > kNamed) MILLRACE_LOG(warn, "and {} more were skipped", skipped.size() - kNamed);
}

base::Result<std::string> build(const data::CommandOptions& given, const data::CommandProgress& progress) {
    data::SoundSetOptions options;
    MILLRACE_SET(options.shares, data::parse_shares(given[kSplit].as<std::string>()));
    options.seed = given[kSeed].as<std::uint64_t>();
    options.positive = given[kPositive].as<std::string>();
    options.threads = static_cast<int>(given[kThreads].as<std::uint32_t>());
    options.waveform = given[kWaveform].as<bool>();
    MILLRACE_LET(source, data::sound_source(given[kFolder].as<std::string>(), given[kRepeat].as<bool>()));
    const std::string& out = given[kOut].as<std::string>();
    MILLRACE_LET(report, data::make_sound_set(out, source, options, progress));
    name_skipped(report.skipped);
    return data::summary_of(out, report);
}

}  // namespace

data::DataCommand build_leak_command() {
    const data::SoundSetOptions usual;
    data::DataCommand command{
        "build-leak", "mel windows of WAV and FLAC recordings in class folders, split by recording", {}, {}, build};
    command.options = {{"WAV_DIR", "folder with a folder of recordings per class", std::string(), {}, true},
                       {"--out", "folder to write", std::string(), "PATH", true},
                       {"--positive", "make it binary: this class against all others", std::string(), "CLASS"},
                       {"--split", "shares of training, validation and test", std::string("0.7,0.2,0.1")},
                       {"--seed", "decides which recordings go where", usual.seed},
                       {"--threads", "0: one per processor", std::uint32_t{0}},
                       {"--waveform", "store the samples beside the mel windows", false},
                       {"--repeat", "repeat recordings shorter than 10 s instead of padding them with silence", false}};
    command.examples =
        "Examples:\n  millrace data build-leak recordings --out data/leak\n"
        "  millrace data build-leak recordings --out data/binary --positive LEAK --split 0.8,0.1,0.1";
    return command;
}

data::DataCommand pack_command() {
    data::DataCommand command{
        "pack", "copy a set of recordings with its training part in random order, for streaming", {}, {}, {}};
    command.options = {{"FOLDER", "folder with TRAINING_DATASET.H5", std::string(), {}, true},
                       {"--out", "folder to write", std::string(), "PATH", true},
                       {"--seed", "decides the order", data::kMakerSeed}};
    command.examples = "Examples:\n  millrace data pack data/leak --out data/leak-packed";
    command.run = [](const data::CommandOptions& given, const data::CommandProgress& progress) {
        return data::pack_recordings(given[0].as<std::string>(), given[1].as<std::string>(), given[2].as<std::uint64_t>(),
                                     progress);
    };
    return command;
}

}  // namespace millrace::models
