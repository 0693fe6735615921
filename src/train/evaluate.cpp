#include "train/evaluate.h"

#include <fmt/format.h>

#include <chrono>

#include "io/checkpoint.h"
#include "record/run_directory.h"
#include "train/recipe_keys.h"
#include "train/setup.h"
#include "train/stored_sentences.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

base::Result<record::FlowTrace> trace_of(Setup& setup, data::Part part, std::int64_t sample, const io::Path& run) {
    const std::int32_t samples = setup.engine->source().samples(part);
    if (setup.engine->model().classifies())
        return base::Error{fmt::format("there is nothing to plot of {}: pictures are drawn of the flows of energy_flow, and a "
                                       "classifier has none",
                                       setup.settings.model),
                           run.string()};
    if (samples == 0)
        return base::Error{fmt::format("the run set no {} aside for {} (data.validation = 0)", setup.unit, data::name_of(part)),
                           run.string(), 4};
    if (sample < 0 || sample >= samples)
        return base::Error{fmt::format("there is no sample {}: the {} {} have numbers from 0 to {}", sample, data::name_of(part),
                                       setup.unit, samples - 1),
                           run.string()};
    MILLRACE_LET(trace, setup.engine->trace(part, static_cast<std::int32_t>(sample)));
    trace.model = fmt::format("{} {}", setup.settings.model, setup.settings.preset);
    return trace;
}

}  // namespace

base::Result<EvaluateReport> evaluate_run(const io::Path& run, std::optional<data::Part> wanted, const std::string& device,
                                          const std::string& data_path, std::optional<std::int64_t> trace_sample) {
    MILLRACE_TRY(record::read_manifest(run));
    MILLRACE_LET(checkpoint, io::load_checkpoint(run / "checkpoints" / "best", io::LoadParts::kModelOnly));
    MILLRACE_LET(state, decode_state(checkpoint.state, (checkpoint.folder / "state.json").string()));
    base::RecipeOverrides overrides;
    if (!device.empty()) overrides.flags.push_back("device=" + device);
    if (!data_path.empty()) overrides.flags.push_back("data.path=" + data_path);
    MILLRACE_LET(recipe, parse_recipe(state.recipe, (checkpoint.folder / "state.json").string(), overrides));
    MILLRACE_LET(sentences, stored_sentences(checkpoint));
    MILLRACE_LET(setup, set_up(recipe, false, {}, 0, sentences));
    MILLRACE_TRY(load_weights(setup.engine->store(), checkpoint, false, setup.engine->model().attachments()));

    EvaluateReport report;
    const data::BatchSource& source = setup.engine->source();
    const bool testable = source.samples(data::Part::test) > 0;
    const data::Part part = wanted.value_or(testable ? data::Part::test : data::Part::validation);
    if (part == data::Part::test && !testable)
        return base::Error{fmt::format("{} has no test part: the {} set aside to select by are all there is; --split validation "
                                       "scores them",
                                       setup.data.name, setup.unit),
                           run.string()};
    if (trace_sample) {
        MILLRACE_LET(trace, trace_of(setup, part, *trace_sample, run));
        trace.step = state.step;
        report.trace = std::move(trace);
    }
    const auto begin = std::chrono::steady_clock::now();
    MILLRACE_LET(members, setup.engine->evaluate(part));
    report.members = std::move(members);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    MILLRACE_TRY(setup.engine->backend().check());
    if (report.members.empty())
        return base::Error{fmt::format("the run set no {} aside for {} (data.validation = 0)", setup.unit, data::name_of(part)),
                           run.string(), 4};
    std::vector<Score> chosen_by;
    for (std::size_t k = 0; k < state.best.losses.size(); ++k)
        chosen_by.push_back({state.best.losses[k], state.best.accuracies[k], {}});
    report.best = best_member(chosen_by.empty() ? report.members : chosen_by, setup.settings.checkpoint.best_metric);
    report.run = run.string();
    report.model = setup.settings.model;
    report.preset = setup.settings.preset;
    report.device = setup.device;
    report.data = setup.data.name;
    report.unit = setup.unit;
    report.classifies = setup.engine->model().classifies();
    report.part = part;
    report.step = state.step;
    report.samples = source.samples(part);
    report.parameters = setup.engine->store().trainable_count();
    return report;
}

}  // namespace millrace::train
