#include "data/makers.h"

#include <fmt/format.h>

namespace millrace::data {
namespace {

const char* outcome(MakeOutcome made) { return made == MakeOutcome::kWritten ? "written" : "holds this set already"; }

Maker garments_maker() {
    const GarmentsOptions usual;
    Maker maker{"garments", "ten kinds of clothing, 28 x 28 pixels, as four IDX files", {}, {}};
    maker.options = {{"--train", "training images", usual.train}, {"--test", "test images", usual.test}};
    maker.make = [](const std::string& folder, std::uint64_t seed, const CommandOptions& given,
                    const CommandProgress& progress) -> base::Result<std::string> {
        const GarmentsOptions options{given[0].as<std::uint32_t>(), given[1].as<std::uint32_t>(), seed};
        MILLRACE_LET(made, make_garments(folder, options, progress));
        return fmt::format("{} {}: {} training and {} test images, seed {}", folder, outcome(made), options.train, options.test,
                           seed);
    };
    return maker;
}

Maker pairs_maker() {
    const PairsOptions usual;
    Maker maker{"pairs", "sentences and their consequences, with vectors, as pairs.safetensors and pairs.jsonl", {}, {}};
    maker.options = {{"--count", "pairs of sentences", usual.count},
                     {"--dimensions", "width of a sentence vector, 1 to 16384", usual.dimensions}};
    maker.make = [](const std::string& folder, std::uint64_t seed, const CommandOptions& given,
                    const CommandProgress&) -> base::Result<std::string> {
        const PairsOptions options{given[0].as<std::uint32_t>(), seed, given[1].as<std::uint32_t>()};
        MILLRACE_LET(made, make_pairs(folder, options));
        return fmt::format("{} {}: {} pairs of sentences, vectors of {} dimensions, seed {}", folder, outcome(made),
                           options.count, options.dimensions, seed);
    };
    return maker;
}

Maker hydrophone_maker() {
    const HydrophoneOptions usual;
    Maker maker{"hydrophone", "sounds of water pipes, five classes of 10 s, as three HDF5 files of mel windows", {}, {}};
    maker.options = {{"--files", "recordings of all classes together", usual.files},
                     {"--gain", "level in dB, -200 to 0; -60 is a quiet sensor", usual.gain},
                     {"--binary", "labels NOLEAK and LEAK instead of five", false},
                     {"--waveform", "store the samples beside the mel windows", false},
                     {"--wav", "write WAV files in class folders instead", false},
                     {"--threads", "0: one per processor", std::uint32_t{0}}};
    maker.make = [](const std::string& folder, std::uint64_t seed, const CommandOptions& given,
                    const CommandProgress& progress) -> base::Result<std::string> {
        const HydrophoneOptions options{given[0].as<std::uint32_t>(), seed,
                                        given[1].as<double>(),        given[2].as<bool>(),
                                        given[3].as<bool>(),          static_cast<int>(given[5].as<std::uint32_t>())};
        if (!given[4].as<bool>()) {
            MILLRACE_LET(report, make_hydrophone(folder, options, progress));
            return fmt::format("{}, seed {}", summary_of(folder, report), seed);
        }
        MILLRACE_LET(made, make_hydrophone_wav(folder, options, progress));
        return fmt::format("{} {}: {} WAV files in class folders, seed {}", folder, outcome(made), options.files, seed);
    };
    return maker;
}

Maker text_maker() {
    const TextOptions usual;
    Maker maker{"text", "statements and their consequences, as train.txt, valid.txt and test.txt", {}, {}};
    maker.options = {{"--words", "words of train.txt; the other two have a tenth each", usual.words}};
    maker.make = [](const std::string& folder, std::uint64_t seed, const CommandOptions& given,
                    const CommandProgress&) -> base::Result<std::string> {
        const TextOptions options{given[0].as<std::uint32_t>(), seed};
        MILLRACE_LET(made, make_text(folder, options));
        return fmt::format("{} {}: {} words to train on, seed {}", folder, outcome(made), options.words, seed);
    };
    return maker;
}

}  // namespace

std::vector<Maker> makers() { return {garments_maker(), pairs_maker(), hydrophone_maker(), text_maker()}; }

}  // namespace millrace::data
