#include "data/load_samples.h"

#include <fmt/format.h>

#include "data/arrays/array_set.h"
#include "data/at_path.h"
#include "data/forms.h"
#include "data/images/image_set.h"
#include "data/pictures/picture_set.h"
#include "data/resident_samples.h"
#include "data/tables/table_set.h"

namespace millrace::data {
namespace {

Augmentation augmentation_of(const base::Recipe& recipe) {
    return {recipe.boolean("data.augment"), static_cast<float>(recipe.real("data.rotate")),
            static_cast<float>(recipe.real("data.shift")), static_cast<float>(recipe.real("data.scale")),
            static_cast<float>(recipe.real("data.flip"))};
}

/// IDX files have no more than a checkpoint may say of their scale and classes.
Result<SampleSet> load_idx_set(const SampleRequest& request) {
    MILLRACE_LET(images, load_image_set(request.path, request.validation, request.seed));
    SampleSet set = samples_of(images);
    if (request.stored == nullptr) return set;
    const Preparation& stored = *request.stored;
    if (set.preparation.classes > stored.classes)
        return Error{
            fmt::format("has labels up to {}; the training data had {} classes", set.preparation.classes - 1, stored.classes),
            request.path.string()};
    return set;
}

Result<SampleSet> read_form(const SampleRequest& request) {
    switch (form_of(request.path)) {
        case Form::pictures: return load_picture_set(request);
        case Form::table: return load_table_set(request);
        case Form::arrays: return load_array_set(request);
        default: break;
    }
    std::error_code ignored;
    if (form_of(request.path) == Form::unknown && std::filesystem::exists(request.path, ignored))
        return Error{
            "holds nothing to train on; a folder for each class with PNG or JPEG pictures, a table (.csv, .tsv), arrays "
            "(.npy, .npz) or IDX files would be right",
            request.path.string()};
    return load_idx_set(request);
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

Result<SampleSet> load_sample_set(const SampleRequest& request) {
    MILLRACE_LET(set, read_form(request));
    if (request.stored != nullptr && set.preparation.target.has_value() != request.stored->target.has_value())
        return Error{"has other answers than the training data", request.path.string()};
    if (request.stored != nullptr && set.preparation.shape != request.stored->shape)
        return Error{"has images of another shape than the training data", request.path.string()};
    if (request.stored != nullptr) set.preparation = *request.stored;
    return set;
}

base::Result<LoadedData> load_samples(const base::Recipe& recipe, bool training, const StoredData& stored,
                                      const ChooseStream& choose) {
    if (recipe.real("data.validation") + recipe.real("data.test") >= 1)
        return recipe.bad("data.test", "data.validation and data.test leave nothing to train on; a sum below 1 would be right");
    SampleRequest request;
    request.path = recipe.text("data.path");
    request.validation = recipe.real("data.validation");
    request.test = recipe.real("data.test");
    request.seed = static_cast<std::uint64_t>(recipe.integer("data.split_seed"));
    request.size = recipe.text("data.size");
    request.resize = recipe.text("data.resize");
    request.colour = recipe.text("data.colour");
    request.target = recipe.text("data.target");
    request.task = recipe.text("data.task");
    request.ignore = recipe.text("data.ignore");
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
