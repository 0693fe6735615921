#include "data/load.h"

#include <fmt/format.h>

#include "data/forms.h"
#include "data/resident_samples.h"

namespace millrace::data {
namespace {

Augmentation augmentation_of(const base::Recipe& recipe) {
    return {recipe.boolean("data.augment"), static_cast<float>(recipe.real("data.rotate")),
            static_cast<float>(recipe.real("data.shift")), static_cast<float>(recipe.real("data.scale")),
            static_cast<float>(recipe.real("data.flip"))};
}

}  // namespace

void add_part_keys(base::Schema& schema, const std::string& of) {
    schema.real("data.validation", 0.1, fmt::format("share of {} set aside to select the best weights", of)).at_least(0).below(1);
    schema.real("data.test", 0.1, fmt::format("share of {} set aside to test by, where the data has no test part of its own", of))
        .at_least(0)
        .below(1);
}

void add_sample_keys(base::Schema& schema) {
    schema.text("data.path", "data/garments",
                "folder of pictures by class, table (.csv, .tsv), arrays (.npy, .npz), or folder with four IDX files");
    add_part_keys(schema, "the samples");
    schema.integer("data.split_seed", 42, "decides which samples are set aside").at_least(0);
    schema.text("data.size", "", "pictures: width x height that all are given, \"32x32\"; empty: their own, or 64x64");
    schema.choice("data.resize", "fit", {"fit", "crop"}, "pictures: fit shows all of one with borders, crop its middle");
    schema.choice("data.colour", "auto", {"auto", "grey", "colour"}, "pictures: auto is grey where all files are");
    schema.text("data.target", "", "tables: the column to predict");
    schema.choice("data.task", "auto", {"auto", "classification", "regression"},
                  "tables: auto predicts numbers where the column to predict has numbers alone, else classes");
    schema.text("data.ignore", "", "tables: columns that are not read, with commas");
    add_stream_keys(schema);
    schema.boolean("data.augment", false, "turn, move, scale and mirror training images at random");
    schema.real("data.rotate", 15, "augmentation: largest angle in degrees").between(0, 180);
    schema.real("data.shift", 0.1, "augmentation: largest move as a share of width and height").between(0, 1);
    schema.real("data.scale", 0.1, "augmentation: largest change of size, 0.1 is 10 %").at_least(0).below(1);
    schema.real("data.flip", 0.5, "augmentation: probability of mirroring").between(0, 1);
}

base::Result<LoadedData> load_samples(const base::Recipe& recipe, bool training, const StoredData& stored,
                                      const ChooseStream& choose) {
    if (!(recipe.real("data.validation") + recipe.real("data.test") < 1))
        return recipe.bad("data.test", "data.validation and data.test leave nothing to train on; a sum below 1 would be right");
    SampleRequest request{.path = recipe.text("data.path"),
                          .validation = recipe.real("data.validation"),
                          .test = recipe.real("data.test"),
                          .seed = static_cast<std::uint64_t>(recipe.integer("data.split_seed")),
                          .size = recipe.text("data.size"),
                          .resize = recipe.text("data.resize"),
                          .colour = recipe.text("data.colour"),
                          .target = recipe.text("data.target"),
                          .task = recipe.text("data.task"),
                          .ignore = recipe.text("data.ignore")};
    Preparation preparation;
    if (!stored.preparation.empty()) {
        MILLRACE_SET(preparation, decode_preparation(stored.preparation, "data_preparation of the checkpoint"));
        request.stored = &preparation;
    }
    MILLRACE_LET(loaded, at_path(recipe, training, load_sample_set(request)));
    auto set = std::make_shared<const SampleSet>(std::move(loaded));
    LoadedData data;
    const auto count = [&](Part part) { return static_cast<std::int64_t>(set->part(part).size()); };
    data.identity = {set->name, count(Part::train), count(Part::validation), count(Part::test), set->checksum};
    data.unit = set->unit;
    if (choose)
        MILLRACE_SET(data.identity.streamed, choose(std::uint64_t{set->input_bytes() + 2 * sizeof(std::int32_t)} *
                                                    static_cast<std::uint64_t>(set->count)));
    if (!data.identity.streamed) {
        data.source = std::make_unique<ResidentSamples>(std::move(set), augmentation_of(recipe));
        return data;
    }
    const StreamOptions options = read_stream_options(recipe, training);
    MILLRACE_LET(rows, streamed(set, augmentation_of(recipe), options.seed));
    auto source = StreamedSource::create(std::move(rows), options);
    if (!source.ok()) return recipe.bad("data.window", source.error().message);
    data.source = std::move(source).value();
    return data;
}

}  // namespace millrace::data
