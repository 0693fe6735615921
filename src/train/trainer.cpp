#include "train/trainer.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "base/version.h"
#include "train/recipe_keys.h"
#include "train/run.h"
#include "train/stored_sentences.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using record::Path;

/// Where a run to be resumed stands; no checkpoint yet means at its beginning.
struct Standing {
    std::optional<record::LoadedCheckpoint> checkpoint;
    RunState state;
};

/// What `last` names. Without that link, the newest step folder that is complete: a run that was saved never starts over unasked.
base::Result<std::optional<record::LoadedCheckpoint>> newest_checkpoint(const Path& checkpoints) {
    using Found = std::optional<record::LoadedCheckpoint>;
    std::error_code ignored;
    if (fs::exists(checkpoints / "last", ignored)) {
        MILLRACE_LET(loaded, record::load_checkpoint(checkpoints / "last"));
        return Found(std::move(loaded));
    }
    MILLRACE_LET(folders, record::step_folders(checkpoints));
    if (folders.empty()) return Found{};
    std::optional<base::Error> first;
    for (const Path& folder : folders) {
        auto loaded = record::load_checkpoint(folder);
        if (loaded.ok()) {
            MILLRACE_LOG(warn, "{} leads nowhere; going on from {}", (checkpoints / "last").string(), folder.string());
            return Found(std::move(loaded).value());
        }
        if (!first) first = loaded.error();
    }
    return base::Error{"'last' leads nowhere and no step folder is complete; train anew with another --out", checkpoints.string()}
        .because(*first);
}

base::Result<Standing> stand_of(const Path& run, const base::Recipe& recipe) {
    MILLRACE_TRY(record::read_manifest(run));
    Standing standing;
    MILLRACE_LET(newest, newest_checkpoint(run / "checkpoints"));
    if (!newest) return standing;
    record::LoadedCheckpoint checkpoint = std::move(*newest);
    const std::string place = (checkpoint.folder / "state.json").string();
    MILLRACE_LET(state, decode_state(checkpoint.state, place));
    if (state.figures.model != recipe.text("model.name") || state.figures.preset != recipe.text("model.preset"))
        return base::Error{
            fmt::format("is a checkpoint of {} {}; the recipe's model.name and model.preset are {} {}", state.figures.model,
                        state.figures.preset, recipe.text("model.name"), recipe.text("model.preset")),
            place};
    MILLRACE_LET(before, parse_recipe(state.recipe, place, {}));
    MILLRACE_TRY(check_resumable(before, recipe));
    if (before.integer("train.epochs") != recipe.integer("train.epochs") && recipe.text("optim.schedule") == "cosine")
        MILLRACE_LOG(warn, "train.epochs grew from {} to {}: the cosine schedule now ends later, so the learning rate jumps",
                     before.integer("train.epochs"), recipe.integer("train.epochs"));
    standing.checkpoint = std::move(checkpoint);
    standing.state = std::move(state);
    std::error_code ignored;
    if (standing.state.best.any && !fs::exists(run / "checkpoints" / "best", ignored)) {
        MILLRACE_LOG(warn, "{} is missing: the best weights are chosen anew", (run / "checkpoints" / "best").string());
        standing.state.best = {};
    }
    return standing;
}

base::Result<RunResult> run_in(record::RunDirectory& directory, Setup& setup, const base::Recipe& recipe, RunState state,
                               const TrainRequest& request, Observer& observer, const base::Clock& clock) {
    MILLRACE_TRY(directory.metrics().truncate_to(state.metrics_offset));
    MILLRACE_LET(checkpoints, record::CheckpointStore::open(directory.checkpoints(), {setup.settings.checkpoint.keep,
                                                                                      setup.settings.checkpoint.keep_bytes}));
    std::unique_ptr<sense::Source> source;
    if (setup.settings.telemetry.interval.count() > 0)
        source = request.machine ? request.machine() : sense::open_machine(sense::machine_options());
    MILLRACE_LET(telemetry,
                 Telemetry::start(setup.settings.telemetry, directory.path(), std::move(source), directory.events(), clock));
    Run run(setup, recipe, directory, checkpoints, std::move(state), observer, *telemetry, clock);
    return run.execute(request.stop);
}

}  // namespace

base::Result<RunResult> train(const base::Recipe& recipe, const TrainRequest& request, Observer& observer,
                              const base::Clock& clock) {
    Standing standing;
    std::optional<record::FileDescriptor> lock;
    if (request.resume) {
        // First of all: whoever still writes this run may be about to replace the checkpoint.
        MILLRACE_LET(held, record::lock_run(request.out));
        lock = std::move(held);
        auto found = stand_of(request.out, recipe);
        if (!found.ok()) return base::Error{fmt::format("cannot resume {}", request.out.string())}.because(found.error());
        standing = std::move(found).value();
    }
    // The same split as before, whatever is free now: other micro-batches round differently.
    data::SentenceShape sentences;
    if (standing.checkpoint) {
        MILLRACE_LET(stored, stored_sentences(*standing.checkpoint));
        sentences = std::move(stored);
    }
    MILLRACE_LET(setup, set_up(recipe, true, request.adapt_source, standing.state.micro_batch, sentences));
    if (standing.checkpoint) {
        if (!(standing.state.data == setup.data))
            return recipe.bad("data.path",
                              fmt::format("the run was trained on other data ({}; here: {}); resume with the same files",
                                          data_text(standing.state.data, setup.unit), data_text(setup.data, setup.unit)));
        MILLRACE_TRY(restore(*setup.engine, setup.settings, standing.state, *standing.checkpoint));
        standing.checkpoint.reset();
    } else {
        standing.state.epoch_sums = StepSums(setup.settings.members);
    }
    record::Manifest manifest;
    manifest.command = request.command;
    manifest.recipe = recipe.to_json();
    manifest.device = setup.device;
    manifest.versions = {{"compiler", base::compiler()}};
    MILLRACE_LET(directory,
                 record::RunDirectory::open(request.out, request.resume ? record::RunStart::kResume : record::RunStart::kNew,
                                            manifest, std::move(lock)));
    auto result = run_in(directory, setup, recipe, std::move(standing.state), request, observer, clock);
    if (!result.ok()) {
        // The first failure is what the user must see; a disk that is full will fail here again.
        (void)directory.finish(record::RunStatus::kFailed, result.error().exit_status);
        return result.error();
    }
    const bool stopped = result->signal != 0;
    MILLRACE_TRY(directory.finish(stopped ? record::RunStatus::kInterrupted : record::RunStatus::kFinished,
                                  stopped ? 128 + result->signal : 0));
    observer.on_finish(*result);
    return result;
}

base::Result<Path> default_run_directory(const std::string& recipe_path, bool resume) {
    const Path base = Path("runs") / Path(recipe_path).stem();
    std::error_code ignored;
    Path newest;
    for (int number = 1; number < 100000; ++number) {
        const Path candidate = number == 1 ? base : Path(fmt::format("{}-{}", base.string(), number));
        if (!fs::exists(candidate, ignored)) {
            if (!resume) return candidate;
            break;
        }
        newest = candidate;
    }
    if (newest.empty() || !resume) return base::Error{"there is no run to resume; name it with --out", base.string()};
    return newest;
}

}  // namespace millrace::train
