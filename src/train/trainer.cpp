#include "train/trainer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/log.h"
#include "base/version.h"
#include "models/registry.h"
#include "models/weights.h"
#include "train/checkpoints.h"
#include "train/domain_scores.h"
#include "train/initial_weights.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/structure.h"
#include "train/warnings.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using io::Path;

constexpr int kMostNumbers = 100'000;  // more runs of one name than there are, few enough to look for them all

/// Writes what the model's family has to say about a run into its folder: at the end of every epoch and of the run.
class RunFiles final : public Listener {
public:
    /// `loop` is borrowed. `report` is Family::run_report; null: there is nothing to say.
    RunFiles(Loop& loop, models::RunReport (*report)(const models::Model&, tape::Store&), Path folder)
        : loop_(loop), report_(report), folder_(std::move(folder)) {}

    base::Status on_epoch(EpochReport& /*report*/) override {
        write();
        return base::ok();
    }
    /// Before anything replaces the newest weights.
    base::Status on_stop(RunResult& result) override {
        if (const std::string summary = write(); !summary.empty() && !result.was_complete) MILLRACE_LOG(info, "{}", summary);
        return base::ok();
    }

private:
    /// The line for people; empty: there is nothing to say. A file that cannot be written is a warning: training goes on.
    std::string write() {
        if (report_ == nullptr) return {};
        const models::RunReport report = report_(loop_.engine().model(), loop_.engine().store());
        for (const models::RunFile& file : report.files)
            if (const auto written = io::write_atomically(folder_ / file.name, file.content); !written.ok())
                MILLRACE_LOG(warn, "{}", written.error().text());
        return report.summary;
    }

    Loop& loop_;
    models::RunReport (*const report_)(const models::Model&, tape::Store&);
    const Path folder_;
};

/// `recipe` changes with the structure of the run.
base::Result<RunResult> run_in(record::RunDirectory& directory, Setup& setup, base::Recipe& recipe, const RunState& state,
                               const data::StoredData& stored, models::Course course, const TrainRequest& request,
                               const std::vector<Listener*>& listeners, const base::Clock& clock) {
    MILLRACE_TRY(cut_metrics(directory.metrics(), state.metrics_offset));
    MILLRACE_LET(checkpoints, io::CheckpointStore::open(directory.checkpoints(),
                                                        {setup.settings.checkpoint.keep, setup.settings.checkpoint.keep_bytes}));
    std::unique_ptr<sense::Source> source;
    if (setup.settings.telemetry.interval.count() > 0)
        source = request.machine ? request.machine() : sense::open_machine(sense::machine_options());
    MILLRACE_LET(telemetry,
                 Telemetry::start(setup.settings.telemetry, directory.path(), std::move(source), directory.events(), clock));
    Loop loop(setup, state, directory.path().string(), request.stop, clock);
    MILLRACE_LET(family, models::find_family(setup.settings.model));
    MILLRACE_LET(structure_settings, read_structure(recipe, *family));
    StructureChanges structure({loop, recipe, *family, structure_settings, request.adapt_source, stored, directory.events()});
    RunFiles files(loop, family->run_report, directory.path());
    Selection selection(loop, state.best, directory.checkpoints() / "best",
                        [&](const io::LoadedCheckpoint& checkpoint) { return structure.engine_of(checkpoint); });
    Patience patience(loop, state.staleness, state.complete);
    DomainScores domains(std::move(course), directory.path());
    RunLog log(loop, directory.metrics(), *telemetry, clock);
    Checkpoints saver({loop, recipe, checkpoints, selection, patience, domains, log, directory.events(), clock, request.saves},
                      state.members.empty() ? std::nullopt : std::optional(state.step));
    RunWarnings warnings(loop, *telemetry, clock);
    // The order of the listeners. Files about the run come before the best weights replace its newest. A report is complete
    // before its row is written: the machine, then the scores. Rows come before the checkpoint that holds their offset in the
    // file. The console and other listeners from outside see what is on the disk. Warnings are printed below the line of their
    // epoch.
    for (Listener* part :
         std::initializer_list<Listener*>{&structure, &files, telemetry.get(), &selection, &patience, &domains, &log, &saver})
        loop.add(*part);
    for (Listener* listener : listeners) loop.add(*listener);
    loop.add(warnings);
    return loop.run();
}

/// A run that ended before its first checkpoint begins anew, from where it began.
base::Result<std::optional<InitialWeights>> initial_weights(const TrainRequest& request, const Standing& standing) {
    std::optional<InitialWeights> found;
    if (!request.resume && !request.init.empty()) {
        MILLRACE_SET(found, load_initial_weights(request.init));
    } else if (request.resume && !standing.checkpoint) {
        MILLRACE_LET(manifest, record::read_manifest(request.out));
        if (!manifest.init) return found;
        MILLRACE_SET(found, reload_initial_weights(*manifest.init));
    }
    return found;
}

Path numbered(const Path& base, int number) { return number == 1 ? base : Path(fmt::format("{}-{}", base.string(), number)); }

}  // namespace

base::Result<RunResult> train(const base::Recipe& given, const TrainRequest& request, const std::vector<Listener*>& listeners,
                              const base::Clock& clock) {
    base::Recipe recipe = given;
    if (request.resume && !request.init.empty())
        return base::Error{"--init starts a new run and --resume continues one with its own weights; give one of the two",
                           request.init.string()};
    Standing standing;
    std::optional<io::FileDescriptor> lock;
    if (request.resume) {
        // First of all: a process that still writes this run may be about to replace the checkpoint.
        MILLRACE_SET(lock, record::lock_run(request.out));
        auto found = stand_of(request.out, recipe);
        if (!found.ok())
            return base::Error{fmt::format("cannot resume {}", request.out.string()), {}, found.error().exit_status}.because(
                found.error());
        standing = std::move(found).value();
        if (standing.recipe) recipe = *standing.recipe;
    }
    MILLRACE_LET(init, initial_weights(request, standing));
    data::StoredData stored;
    if (standing.checkpoint || init) {
        MILLRACE_SET(stored, models::stored_data(recipe, init ? init->weights : *standing.checkpoint));
        if (standing.checkpoint) stored.streamed = standing.state.data.streamed;
    }
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    MILLRACE_TRY(read_structure(recipe, *family));
    // The same split and forms as before, even if more memory is free or others are faster now: these round differently.
    MILLRACE_LET(setup,
                 set_up(recipe, true, request.adapt_source, standing.state.micro_batch, stored, false, standing.state.forms));
    if (standing.checkpoint) {
        if (!(standing.state.data == setup.data))
            return recipe.bad("data.path",
                              fmt::format("the run was trained on other data ({}; here: {}); resume with the same files",
                                          data_text(standing.state.data, setup.unit), data_text(setup.data, setup.unit)));
        MILLRACE_TRY(restore(*setup.engine, setup.settings, standing.state, *standing.checkpoint));
        standing.checkpoint.reset();
    } else {
        standing.state.epoch_sums = StepSums(setup.settings.members);
        if (init) MILLRACE_TRY(models::load_initial(setup.engine->store(), init->weights, setup.engine->model().attachments()));
    }
    MILLRACE_LET(course, course_of(recipe, setup.settings));
    course.epochs = standing.state.domains;
    record::Manifest manifest;
    manifest.command = request.command;
    manifest.recipe = recipe.to_json();
    manifest.device = setup.device;
    manifest.versions = {{"compiler", base::compiler()}};
    if (init) {
        manifest.init = init->origin;
        MILLRACE_LOG(info, "the weights start from {}", init->origin.path);
        init.reset();
    }
    Path out = request.out;
    if (request.number_if_taken && !request.resume) MILLRACE_SET(out, claim_run_directory(request.out));
    MILLRACE_LET(directory, record::RunDirectory::open(out, request.resume ? record::RunStart::kResume : record::RunStart::kNew,
                                                       manifest, std::move(lock)));
    auto result = run_in(directory, setup, recipe, standing.state, stored, std::move(course), request, listeners, clock);
    if (!result.ok()) {
        // The first failure is what the user must see; a disk that is full will fail here again.
        (void)directory.finish(record::RunStatus::kFailed, result.error().exit_status, result.error().text());
        return result.error();
    }
    const int signal = result->signal;
    const base::Status finished = directory.finish(
        result->stopped ? record::RunStatus::kInterrupted : record::RunStatus::kFinished, signal != 0 ? 128 + signal : 0,
        signal != 0                   ? "a signal stopped the run"
        : result->stopped             ? "a listener stopped the run"
        : result->ended_early.empty() ? "the run ended"
                                      : result->ended_early);
    for (Listener* listener : listeners) listener->on_finish(*result);  // in any case: the weights are saved
    if (!finished.ok()) return finished.error();
    return result;
}

Path default_run_directory(const std::string& recipe_path) { return Path("runs") / Path(recipe_path).stem(); }

base::Result<Path> claim_run_directory(const Path& base) {
    std::error_code failed;
    fs::create_directories(base.parent_path(), failed);
    if (failed) return io::system_error("cannot create", base.parent_path(), failed.value());
    for (int number = 1; number <= kMostNumbers; ++number) {
        const Path candidate = numbered(base, number);
        if (mkdir(candidate.c_str(), 0777) == 0) return candidate;
        if (errno != EEXIST) return io::system_error("cannot create the run directory", candidate, errno);
    }
    return base::Error{fmt::format("exists, and so do {} with a number behind it; name a folder with --out", kMostNumbers),
                       base.string()};
}

base::Result<Path> newest_run_directory(const Path& base) {
    std::error_code ignored;
    Path newest;
    for (int number = 1; number <= kMostNumbers && fs::exists(numbered(base, number), ignored); ++number)
        newest = numbered(base, number);
    if (newest.empty()) return base::Error{"there is no run to resume; name it with --out", base.string()};
    return newest;
}

}  // namespace millrace::train
