#include "train/data_sets.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "data/resident_images.h"
#include "data/resident_pairs.h"
#include "io/checksum.h"

namespace millrace::train {
namespace {

base::Error cannot_load(const base::Recipe& recipe, bool training, const base::Error& cause) {
    base::Error error =
        recipe
            .bad("data.path",
                 fmt::format("cannot load data.path = \"{}\"{}", recipe.text("data.path"),
                             training ? "" : "; --data names the folder when it has moved or the path is not from here"))
            .because(cause);
    error.exit_status = cause.exit_status;
    return error;
}

/// A folder of the other kind is a mistake in the recipe; its files missing is only how that shows.
base::Status check_kind(const base::Recipe& recipe, models::DataKind kind) {
    namespace fs = std::filesystem;
    const fs::path folder = recipe.text("data.path");
    std::error_code ignored;
    const bool images = fs::exists(folder / data::kTrainImages, ignored),
               pairs = fs::exists(folder / data::kPairVectors, ignored);
    if (kind == models::DataKind::images && pairs && !images)
        return recipe.bad("data.path", fmt::format("data.path = \"{}\" holds pairs of sentences, but {} is trained on images",
                                                   folder.string(), recipe.text("model.name")));
    if (kind == models::DataKind::pairs && images && !pairs)
        return recipe.bad("data.path", fmt::format("data.path = \"{}\" holds images, but {} is trained on pairs of sentences; "
                                                   "`millrace data make pairs --out PATH` writes some",
                                                   folder.string(), recipe.text("model.name")));
    return base::ok();
}

std::uint64_t split_seed(const base::Recipe& recipe) { return static_cast<std::uint64_t>(recipe.integer("data.split_seed")); }

DataIdentity identify(const data::ImageSet& set) {
    io::Checksum64 sum;
    for (const data::LabeledImages* images : {&set.train, &set.test}) {
        sum.update(std::as_bytes(std::span(images->pixels)));
        sum.update(std::as_bytes(std::span(images->labels)));
    }
    return {set.name, static_cast<std::int64_t>(set.split.training.size()),
            static_cast<std::int64_t>(set.split.validation.size()), set.test.count, sum.value()};
}

data::Augmentation augmentation_of(const base::Recipe& recipe) {
    return {recipe.boolean("data.augment"), static_cast<float>(recipe.real("data.rotate")),
            static_cast<float>(recipe.real("data.shift")), static_cast<float>(recipe.real("data.scale")),
            static_cast<float>(recipe.real("data.flip"))};
}

base::Result<LoadedData> load_images(const base::Recipe& recipe, bool training) {
    auto loaded = data::load_image_set(recipe.text("data.path"), recipe.real("data.validation"), split_seed(recipe));
    if (!loaded.ok()) return cannot_load(recipe, training, loaded.error());
    auto set = std::make_shared<const data::ImageSet>(std::move(loaded).value());
    LoadedData data;
    data.identity = identify(*set);
    data.shape = {static_cast<std::int32_t>(set->train.rows * set->train.columns), static_cast<std::int32_t>(set->classes), {}};
    data.source = std::make_unique<data::ResidentImages>(std::move(set), augmentation_of(recipe));
    return data;
}

/// The sentences of `set` as numbers, and in `shape` what the model must know of them.
base::Result<data::PairTokens> number_sentences(const base::Recipe& recipe, const std::string& keys, const data::PairSet& set,
                                                const data::SentenceShape& stored, data::SentenceShape& shape) {
    shape = stored;
    if (!shape.tokenizer) {
        auto trained =
            data::Tokenizer::train(data::training_texts(set), static_cast<std::int32_t>(recipe.integer(keys + ".vocabulary")));
        if (!trained.ok())
            return recipe
                .bad(keys + (data::Tokenizer::available() ? ".vocabulary" : ".enabled"), "cannot number the data's sentences")
                .because(trained.error());
        shape.tokenizer = std::make_shared<const data::Tokenizer>(std::move(trained).value());
    }
    data::PairTokens tokens =
        data::tokenize(set, *shape.tokenizer, static_cast<std::int32_t>(recipe.integer(keys + ".max_tokens")), shape);
    shape.input_tokens = tokens[0].tokens;
    shape.target_tokens = tokens[1].tokens;
    if (const std::int32_t cut = tokens[0].cut + tokens[1].cut; cut > 0)
        MILLRACE_LOG(warn, "{} of {} sentences are longer than {} and {} tokens and were cut", cut, 2 * set.count,
                     shape.input_tokens, shape.target_tokens);
    return tokens;
}

base::Result<LoadedData> load_pairs(const base::Recipe& recipe, const models::Family& family, bool training,
                                    const data::SentenceShape& stored) {
    auto loaded = data::load_pair_set(recipe.text("data.path"), recipe.real("data.validation"), split_seed(recipe));
    if (!loaded.ok()) return cannot_load(recipe, training, loaded.error());
    auto set = std::make_shared<const data::PairSet>(std::move(loaded).value());
    LoadedData data;
    data.identity = {set->name, static_cast<std::int64_t>(set->split.training.size()),
                     static_cast<std::int64_t>(set->split.validation.size()), 0, set->checksum};
    data.shape = {static_cast<std::int32_t>(set->dimensions), static_cast<std::int32_t>(set->dimensions), {}};
    data::PairTokens tokens;
    if (!family.sentences.empty() && recipe.boolean(family.sentences + ".enabled")) {
        MILLRACE_LET(numbered, number_sentences(recipe, family.sentences, *set, stored, data.shape.sentences));
        tokens = std::move(numbered);
    }
    data.source = std::make_unique<data::PairSource>(std::move(set), std::move(tokens));
    return data;
}

}  // namespace

base::Result<LoadedData> load_data(const base::Recipe& recipe, const models::Family& family, bool training,
                                   const data::SentenceShape& stored) {
    MILLRACE_TRY(check_kind(recipe, family.data));
    return family.data == models::DataKind::pairs ? load_pairs(recipe, family, training, stored) : load_images(recipe, training);
}

}  // namespace millrace::train
