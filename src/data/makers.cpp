#include "data/makers.h"

#include <fmt/format.h>

#include "data/images/make_garments.h"
#include "data/pairs/make_pairs.h"

namespace millrace::data {
namespace {

const char* outcome(MakeOutcome made) { return made == MakeOutcome::kWritten ? "written" : "holds this set already"; }

Maker garments_maker() {
    const GarmentsOptions usual;
    Maker maker{"garments", "ten kinds of clothing, 28 x 28 pixels, as four IDX files", {}, {}};
    maker.options = {{"--train", "training images", usual.train}, {"--test", "test images", usual.test}};
    maker.make = [](const std::string& folder, std::uint64_t seed, const std::vector<MakerOption>& given,
                    const MakerProgress& progress) -> base::Result<std::string> {
        const GarmentsOptions options{given[0].value, given[1].value, seed};
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
    maker.make = [](const std::string& folder, std::uint64_t seed, const std::vector<MakerOption>& given,
                    const MakerProgress&) -> base::Result<std::string> {
        const PairsOptions options{given[0].value, seed, given[1].value};
        MILLRACE_LET(made, make_pairs(folder, options));
        return fmt::format("{} {}: {} pairs of sentences, vectors of {} dimensions, seed {}", folder, outcome(made),
                           options.count, options.dimensions, seed);
    };
    return maker;
}

}  // namespace

std::vector<Maker> makers() { return {garments_maker(), pairs_maker()}; }

}  // namespace millrace::data
