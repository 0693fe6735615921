#include "train/evaluate.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/recipe_toml.h"
#include "io/checkpoint.h"
#include "models/weights.h"
#include "record/run_directory.h"
#include "train/recipe_keys.h"
#include "train/setup.h"

namespace millrace::train {
namespace {

/// After which the weights of the best member were saved.
std::uint64_t step_of(const BestWeights& best) { return best.state.best.any ? best.state.best.step : best.state.step; }

base::Result<std::vector<models::Picture>> draw(Setup& setup, const BestWeights& best, data::Part part,
                                                const PictureRequest& request, const io::Path& run) {
    data::BatchSource& source = setup.engine->source();
    const std::int32_t samples = source.samples(part);
    if (best.family->pictures == nullptr) {
        std::string drawing;
        for (const models::Family& family : models::families())
            if (family.pictures != nullptr) drawing += (drawing.empty() ? "" : ", ") + family.name;
        return base::Error{fmt::format("there is nothing to plot of {}; pictures are drawn of {}", setup.settings.model, drawing),
                           run.string()};
    }
    if (samples == 0)
        return base::Error{fmt::format("the run set no {} aside for {} (data.validation = 0)", setup.unit, data::name_of(part)),
                           run.string(), 4};
    if (request.sample < 0 || request.sample >= samples)
        return base::Error{fmt::format("there is no sample {}: the {} {} have numbers from 0 to {}", request.sample,
                                       data::name_of(part), setup.unit, samples - 1),
                           run.string()};
    const auto pictures = best.family->pictures(setup.engine->model());
    const auto position = static_cast<std::int32_t>(request.sample);
    MILLRACE_LET(kept,
                 setup.engine->run_sample(part, position, [&](tape::Builder& builder, data::BatchSource& from, data::Part of) {
                     return pictures->build(builder, from, of);
                 }));
    return pictures->draw({fmt::format("{} {}", setup.settings.model, setup.settings.preset), data::name_of(part), request.sample,
                           samples, step_of(best), source.texts_at(part, position)},
                          kept, request.options);
}

/// Another data.path; errors about it name the option that gave it.
base::Status move_data(base::Recipe& recipe, const std::string& path) {
    base::Schema schema;
    schema.text("data.path", "", "");
    MILLRACE_LET(given, base::Recipe::of({{"data.path", {false, {path}}, "--data " + path, 0}}, schema));
    recipe.take(given, "data.path");
    return base::ok();
}

/// One file of text is all scored, unless it is the run's own, wherever that lies now.
base::Result<data::LoadedData> load_text_file(const BestWeights& best, const data::StoredData& stored) {
    auto cut = data::load_data(best.recipe, best.family->data, best.family->token_keys, false, stored);
    if (cut.ok() && cut->identity.checksum == best.state.data.checksum) return cut;
    MILLRACE_LET(text, data::load_whole_text(best.recipe, best.recipe.text("data.path"), stored));
    return data::windows_of(std::move(text), static_cast<std::int32_t>(best.recipe.integer("data.length")));
}

}  // namespace

base::Result<BestWeights> load_best(const io::Path& run, const std::string& device, const std::string& data_path,
                                    std::vector<std::string> sets) {
    MILLRACE_TRY(record::read_manifest(run));
    MILLRACE_LET(checkpoint, io::load_checkpoint(run / "checkpoints" / "best", io::LoadParts::kModelOnly));
    const std::string place = (checkpoint.folder / "state.json").string();
    MILLRACE_LET(state, decode_state(checkpoint.state, place));
    base::RecipeOverrides overrides{std::move(sets), {}};
    if (!device.empty()) overrides.flags.push_back("device=" + device);
    MILLRACE_LET(recipe, parse_recipe(state.recipe, place, overrides));
    if (!data_path.empty()) MILLRACE_TRY(move_data(recipe, data_path));
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    return BestWeights{std::move(checkpoint), std::move(state), std::move(recipe), family};
}

std::size_t best_member(const BestWeights& best) { return best.state.best.member; }

base::Result<EvaluateReport> evaluate_run(const io::Path& run, std::optional<data::Part> wanted, const std::string& device,
                                          const std::string& data_path, const std::optional<PictureRequest>& pictures) {
    MILLRACE_LET(best, load_best(run, device, data_path));
    const RunState& state = best.state;
    MILLRACE_LET(stored, models::stored_data(best.recipe, best.checkpoint));
    SetUpOptions options{.stored = stored, .class_reports = true};
    std::error_code ignored;
    if (best.family->data == data::DataKind::text && std::filesystem::is_regular_file(data_path, ignored))
        options.load = [&] { return load_text_file(best, stored); };
    MILLRACE_LET(setup, set_up(best.recipe, false, options));
    MILLRACE_TRY(models::load_weights(setup.engine->store(), best.checkpoint, false, setup.engine->attachments()));

    EvaluateReport report;
    const data::BatchSource& source = setup.engine->source();
    const bool testable = source.samples(data::Part::test) > 0;
    const data::Part part = wanted.value_or(testable ? data::Part::test : data::Part::validation);
    if (part == data::Part::test && !testable)
        return base::Error{fmt::format("{} has no test part: the {} set aside to select by are all there is; --split validation "
                                       "scores them",
                                       setup.data.name, setup.unit),
                           run.string()};
    if (pictures) MILLRACE_SET(report.pictures, draw(setup, best, part, *pictures, run));
    const auto begin = std::chrono::steady_clock::now();
    MILLRACE_SET(report.members, setup.engine->evaluate(part));
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    MILLRACE_TRY(setup.engine->backend().check());
    if (report.members.empty())
        return base::Error{fmt::format("the run set no {} aside for {} (data.validation = 0)", setup.unit, data::name_of(part)),
                           run.string(), 4};
    report.best =
        state.best.members.empty() ? best_member(report.members, setup.settings.checkpoint.best_metric) : best_member(best);
    report.run = run.string();
    report.model = setup.settings.model;
    report.preset = setup.settings.preset;
    report.device = setup.device;
    report.data = setup.data.name;
    report.unit = setup.unit;
    report.classifies = setup.engine->model().classifies();
    if (const auto& classes = report.members.front().classes)
        report.class_names = models::class_names(setup.engine->model().wants(), source.fields(), classes->classes.size());
    for (const data::Domain& domain : setup.settings.domains) report.domains.push_back(domain.name);
    report.part = part;
    report.step = step_of(best);
    report.samples = source.samples(part);
    report.parameters = setup.engine->store().trainable_count();
    if (best.family->run_report != nullptr)
        report.about = best.family->run_report(setup.engine->model(), setup.engine->store()).summary;
    return report;
}

}  // namespace millrace::train
