#include "train/setup.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "data/resident_images.h"
#include "models/registry.h"
#include "record/checksum.h"
#include "train/console.h"

namespace millrace::train {
namespace {

DataIdentity identify(const data::ImageSet& set) {
    record::Checksum64 sum;
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

base::Result<std::shared_ptr<const data::ImageSet>> load_data(const base::Recipe& recipe, bool training) {
    auto set = data::load_image_set(recipe.text("data.path"), recipe.real("data.validation"),
                                    static_cast<std::uint64_t>(recipe.integer("data.split_seed")));
    if (!set.ok())
        return recipe
            .bad("data.path",
                 fmt::format("cannot load data.path = \"{}\"{}", recipe.text("data.path"),
                             training ? "" : "; --data names the folder when it has moved or the path is not from here"))
            .because(set.error());
    return std::make_shared<const data::ImageSet>(std::move(set).value());
}

}  // namespace

base::Result<Setup> set_up(const base::Recipe& recipe, bool training, const SourceAdapter& adapt, std::int32_t micro_batch) {
    Setup setup;
    MILLRACE_LET(device, choose_device(recipe.text("device")));
    MILLRACE_LET(precision, choose_precision(recipe.text("precision"), device));
    MILLRACE_LET(set, load_data(recipe, training));
    setup.data = identify(*set);
    MILLRACE_LET(settings, read_settings(recipe, static_cast<std::int32_t>(set->split.training.size())));
    setup.settings = std::move(settings);
    if (setup.settings.micro_batch == 0 && micro_batch > 0 && setup.settings.batch % micro_batch == 0)
        setup.settings.micro_batch = micro_batch;
    const auto features = static_cast<std::int32_t>(set->train.rows * set->train.columns);
    MILLRACE_LET(model, models::make(recipe, {features, static_cast<std::int32_t>(set->classes)}));

    if (training)
        MILLRACE_TRY(check_batch_rows(recipe, static_cast<std::int32_t>(set->split.training.size()), model->minimum_rows()));

    ops::BackendOptions options;
    options.deterministic = recipe.boolean("deterministic");
    options.threads = static_cast<int>(recipe.integer("threads"));
    setup.threads = options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    MILLRACE_LET(backend, ops::make_backend(device, options));
    setup.device = fmt::format("{}: {}", ops::name_of(device), backend->description());
    setup.precision = precision == tape::Precision::bf16 ? "bf16" : "f32";
    std::unique_ptr<data::BatchSource> source = std::make_unique<data::ResidentImages>(set, augmentation_of(recipe));
    if (adapt) source = adapt(std::move(source));
    EngineOptions engine_options;
    engine_options.precision = precision;
    engine_options.training = training;
    MILLRACE_LET(engine, Engine::create(std::move(backend), std::move(model), std::move(source), setup.settings, engine_options));
    setup.engine = std::move(engine);
    return setup;
}

std::string data_text(const DataIdentity& data) {
    const auto count = [](std::int64_t number) { return grouped(static_cast<std::uint64_t>(number)); };
    return fmt::format("{}: {} images to train on, {} to select by, {} to test", data.name, count(data.train),
                       count(data.validation), count(data.test));
}

}  // namespace millrace::train
