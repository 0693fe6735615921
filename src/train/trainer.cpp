#include "train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/log.h"
#include "base/split.h"
#include "base/version.h"
#include "models/registry.h"
#include "models/weights.h"
#include "train/checkpoints.h"
#include "train/confusion_picture.h"
#include "train/domain_scores.h"
#include "train/initial_weights.h"
#include "train/loop.h"
#include "train/ranks.h"
#include "train/resume.h"
#include "train/structure.h"
#include "train/warnings.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using io::Path;

constexpr int kMostNumbers = 100'000;  // more runs of one name than there are, few enough to look for them all

/// Writes what the model's family has to say about a run into its folder: at the end of every epoch and of the run. Ends a run
/// whose folder was removed: nothing that it learns could be saved.
class RunFiles final : public Listener {
public:
    /// `loop` and `folder` are borrowed. `report` is Family::run_report; null: there is nothing to say.
    RunFiles(Loop& loop, models::RunReport (*report)(const models::Model&, tape::Store&), const io::KeptFolder& folder)
        : loop_(loop), report_(report), folder_(folder) {}

    base::Status on_epoch(EpochReport& report) override {
        MILLRACE_TRY(check_folder(report.step));
        write();
        return base::ok();
    }
    /// Before anything replaces the newest weights.
    base::Status on_stop(RunResult& result) override {
        MILLRACE_TRY(check_folder(result.step));
        if (const std::string now = folder_.name().string(); now != result.run) {
            MILLRACE_LOG(warn, "{} was moved while it trained: the run is in {} now", result.run, now);
            result.run = now;
        }
        if (const std::string summary = write(); !summary.empty() && !result.was_complete) MILLRACE_LOG(info, "{}", summary);
        return base::ok();
    }

private:
    [[nodiscard]] base::Status check_folder(std::uint64_t step) const {
        if (!folder_.was_removed()) return base::ok();
        return base::Error{fmt::format("the run's folder was removed while it trained, so training stopped at step {}: nothing "
                                       "can be saved any more",
                                       step),
                           folder_.name().string(), 1};
    }
    /// The line for people; empty: there is nothing to say. A file that cannot be written is a warning: training goes on.
    std::string write() {
        if (report_ == nullptr) return {};
        const models::RunReport report = report_(loop_.engine().model(), loop_.engine().store());
        for (const models::RunFile& file : report.files)
            if (const auto written = io::write_atomically(folder_.path() / file.name, file.content); !written.ok())
                MILLRACE_LOG(warn, "{}", folder_.named(written.error()).text());
        return report.summary;
    }

    Loop& loop_;
    models::RunReport (*const report_)(const models::Model&, tape::Store&);
    const io::KeptFolder& folder_;
};

/// A run as it is ready to go on.
struct Prepared {
    Setup setup;
    base::Recipe recipe;  ///< of all members; changes with the structure of the run
    RunState state;       ///< of this rank's members
    data::StoredData stored;
    models::Course course;
    io::Path out;
};

/// The part of a rank that writes nothing: what decides, as on rank 0, and what gives weights to it.
base::Result<RunResult> follow(Prepared& run, Ranks& ranks, const TrainRequest& request, const base::Clock& clock) {
    record::EventWriter nowhere = record::EventWriter::to_nowhere();
    Loop loop(run.setup, run.state, run.out.string(), request.stop, clock, &ranks);
    MILLRACE_LET(family, models::find_family(run.setup.settings.model));
    MILLRACE_LET(structure_settings, read_structure(run.recipe, *family));
    StructureChanges structure({loop, run.recipe, *family, structure_settings, request.adapt_source, run.stored, nowhere});
    Selection selection(loop, run.state.best, run.out / "checkpoints" / "best",
                        [&](const io::LoadedCheckpoint& checkpoint) { return structure.engine_of(checkpoint); });
    Patience patience(loop, run.state.staleness, run.state.complete);
    DomainScores domains(std::move(run.course), {});
    Checkpoints saver({loop, run.recipe, nullptr, selection, patience, domains, nullptr, nowhere, clock, request.saves},
                      run.state.members.empty() ? std::nullopt : std::optional(run.state.step));
    for (Listener* part : std::initializer_list<Listener*>{&structure, &selection, &patience, &domains, &saver}) loop.add(*part);
    return loop.run();
}

base::Result<RunResult> run_in(record::RunDirectory& directory, Prepared& run, Ranks* ranks, const TrainRequest& request,
                               const std::vector<Listener*>& listeners, const base::Clock& clock) {
    auto& [setup, recipe, state, stored, course, out] = run;
    MILLRACE_TRY(cut_metrics(directory.metrics(), state.metrics_offset));
    const io::KeptFolder& held = directory.held();
    MILLRACE_LET(checkpoints, io::CheckpointStore::open(directory.checkpoints(),
                                                        {setup.settings.checkpoint.keep, setup.settings.checkpoint.keep_bytes},
                                                        directory.path() / "checkpoints"));
    std::unique_ptr<sense::Source> source;
    if (setup.settings.telemetry.interval.count() > 0)
        source = request.machine ? request.machine() : sense::open_machine(sense::machine_options());
    MILLRACE_LET(telemetry,
                 Telemetry::start(setup.settings.telemetry, held.path(), std::move(source), directory.events(), clock));
    Loop loop(setup, state, directory.path().string(), request.stop, clock, ranks);
    MILLRACE_LET(family, models::find_family(setup.settings.model));
    MILLRACE_LET(structure_settings, read_structure(recipe, *family));
    StructureChanges structure({loop, recipe, *family, structure_settings, request.adapt_source, stored, directory.events()});
    RunFiles files(loop, family->run_report, held);
    Selection selection(loop, state.best, directory.checkpoints() / "best",
                        [&](const io::LoadedCheckpoint& checkpoint) { return structure.engine_of(checkpoint); });
    Patience patience(loop, state.staleness, state.complete);
    DomainScores domains(std::move(course), held.path());
    ConfusionPicture confusion(loop, selection, held.path());
    RunLog log(loop, directory.metrics(), *telemetry, clock);
    Checkpoints saver({loop, recipe, &checkpoints, selection, patience, domains, &log, directory.events(), clock, request.saves},
                      state.members.empty() ? std::nullopt : std::optional(state.step));
    RunWarnings warnings(loop, *telemetry, clock);
    // The order of the listeners. Files about the run come before the best weights replace its newest. A report is complete
    // before its row is written: the machine, then the scores. Rows come before the checkpoint that holds their offset in the
    // file. The console and other listeners from outside see what is on the disk. Warnings are printed below the line of their
    // epoch.
    for (Listener* part : std::initializer_list<Listener*>{&structure, &files, telemetry.get(), &selection, &patience, &domains,
                                                           &log, &saver, &confusion})
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

/// On GPUs some forms are chosen by timing: rank 0 does so, by itself, and all take what it has.
base::Result<std::vector<std::string>> forms_of_all(const base::Recipe& recipe, const SourceAdapter& adapt, Ranks& ranks) {
    const auto device = choose_device(recipe.text("device"));
    std::string forms;
    // Without a device there is an error to come, which set_up() gives.
    if (ranks.leads() && ranks.data() != nullptr && device.ok() && *device == ops::DeviceKind::cuda) {
        const auto rows = static_cast<std::int32_t>(recipe.integer("train.batch")) / ranks.data()->size();
        if (auto own = ranks.own_part(recipe); own.ok())
            if (auto setup = set_up(*own, true, {.adapt = adapt, .micro_batch = rows}); setup.ok())
                forms = fmt::format("{}", fmt::join(setup->engine->backend().forms(), "\n"));
    }
    MILLRACE_LET(text, ranks.from_first(forms));
    return text.empty() ? std::vector<std::string>{} : base::split(text, '\n');
}

Path numbered(const Path& base, int number) { return number == 1 ? base : Path(fmt::format("{}-{}", base.string(), number)); }

/// What a run that goes on has, and what all start from.
struct Beginning {
    Standing standing;
    std::optional<record::RunLock> lock;
    std::optional<InitialWeights> init;
    std::vector<std::string> forms;  ///< of a run without a checkpoint
};

/// Everything that may be wrong with a recipe or its data. Ranks agree once within it, before they open their devices.
base::Result<Prepared> prepare(base::Recipe recipe, const TrainRequest& request, Ranks* ranks, Beginning& begin) {
    Standing& standing = begin.standing;
    if (request.resume) {
        auto found = stand_of(request.out, recipe);
        if (!found.ok())
            return base::Error{fmt::format("cannot resume {}", request.out.string()), {}, found.error().exit_status}.because(
                found.error());
        standing = std::move(found).value();
        if (standing.recipe) recipe = *standing.recipe;
    }
    MILLRACE_SET(begin.init, initial_weights(request, standing));
    std::optional<InitialWeights>& init = begin.init;
    Prepared run{{}, recipe, {}, {}, {}, request.out};
    if (standing.checkpoint || init) {
        MILLRACE_SET(run.stored, models::stored_data(recipe, init ? init->weights : *standing.checkpoint));
        if (standing.checkpoint) run.stored.streamed = standing.state.data.streamed;
    }
    MILLRACE_LET(family, models::find_family(recipe.text("model.name")));
    MILLRACE_TRY(read_structure(recipe, *family));
    base::Recipe own = recipe;
    if (ranks != nullptr) MILLRACE_SET(own, ranks->own_part(recipe));
    // The same split and forms as before, even if more memory is free or others are faster now: these round differently.
    SetUpOptions options{request.adapt_source, standing.state.micro_batch, run.stored, true, standing.state.forms, ranks};
    if (options.forms.empty()) options.forms = begin.forms;
    MILLRACE_SET(run.setup, set_up(own, true, options));
    return run;
}

/// Puts the run where it stands, before anything is written.
base::Status load(Prepared& run, Ranks* ranks, Beginning& begin) {
    Standing& standing = begin.standing;
    std::optional<InitialWeights>& init = begin.init;
    const base::Recipe& recipe = run.recipe;
    Setup& setup = run.setup;
    run.state = ranks != nullptr ? ranks->own_part(standing.state) : standing.state;
    if (standing.checkpoint) {
        if (!(standing.state.data == setup.data))
            return recipe.bad("data.path",
                              fmt::format("the run was trained on other data ({}; here: {}); resume with the same files",
                                          data_text(standing.state.data, setup.unit), data_text(setup.data, setup.unit)));
        if (ranks != nullptr) ranks->keep_own(*standing.checkpoint);
        MILLRACE_TRY(restore(*setup.engine, setup.settings, run.state, *standing.checkpoint));
        standing.checkpoint.reset();
    } else {
        run.state.epoch_sums = StepSums(setup.settings.members);
        if (init) {
            if (ranks != nullptr) ranks->keep_own(init->weights);
            MILLRACE_TRY(models::load_initial(setup.engine->store(), init->weights, setup.engine->attachments()));
        }
    }
    RunSettings all = setup.settings;
    all.seeds = read_seeds(recipe);
    MILLRACE_SET(run.course, course_of(recipe, all));
    run.course.epochs = standing.state.domains;
    return base::ok();
}

record::Manifest manifest_of(const Prepared& run, const TrainRequest& request, std::optional<InitialWeights>& init) {
    record::Manifest manifest;
    manifest.command = request.command;
    manifest.recipe = run.recipe.to_json();
    manifest.device = run.setup.device;
    manifest.versions = {{"compiler", base::compiler()}};
    if (init) {
        manifest.init = init->origin;
        MILLRACE_LOG(info, "the weights start from {}", init->origin.path);
        init.reset();
    }
    return manifest;
}

/// As rank 0, or alone.
base::Result<RunResult> lead(record::RunDirectory& directory, Prepared& run, Ranks* ranks, const TrainRequest& request,
                             const std::vector<Listener*>& listeners, const base::Clock& clock) {
    auto result = run_in(directory, run, ranks, request, listeners, clock);
    if (!result.ok()) {
        const base::Error failure = directory.held().named(result.error());
        // The first failure is what the user must see; a disk that is full will fail here again.
        (void)directory.finish(record::RunStatus::kFailed, failure.exit_status, failure.text());
        return failure;
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

/// Rank 0 takes the folder, and all learn which; the others have no directory.
base::Result<std::optional<record::RunDirectory>> open_directory(Prepared& run, const TrainRequest& request, Beginning& begin) {
    if (request.number_if_taken && !request.resume) MILLRACE_SET(run.out, claim_run_directory(request.out));
    MILLRACE_LET(directory,
                 record::RunDirectory::open(run.out, request.resume ? record::RunStart::kResume : record::RunStart::kNew,
                                            manifest_of(run, request, begin.init), std::move(begin.lock)));
    return std::optional(std::move(directory));
}

base::Result<RunResult> train_together(const base::Recipe& recipe, const TrainRequest& request, Ranks& ranks,
                                       const std::vector<Listener*>& listeners, const base::Clock& clock) {
    Beginning begin;
    std::optional<comm::Watchdog::Pause> waits(std::in_place, ranks.watchdog());
    base::Status locked = base::ok();
    if (request.resume && ranks.leads()) {
        if (auto lock = record::lock_run(request.out); lock.ok())
            begin.lock = std::move(lock).value();
        else
            locked = lock.error();
    }
    const auto agree = [&](const auto& result) {
        return comm::Group::agree(ranks.world(), result.ok() ? base::ok() : base::Status(result.error()));
    };
    MILLRACE_TRY(agree(locked));
    if (!request.resume) MILLRACE_SET(begin.forms, forms_of_all(recipe, request.adapt_source, ranks));
    auto run = prepare(recipe, request, &ranks, begin);
    if (ranks.refused()) return run.error();
    MILLRACE_TRY(ranks.agree(run.ok() ? base::ok() : base::Status(run.error())));
    for (const auto& [text, what] :
         {std::pair{data_text(run->setup.data, run->setup.unit), "data"}, std::pair{run->setup.engine->plan_to_share(), "plan"}})
        MILLRACE_TRY(ranks.all_equal(text, what));
    if (ranks.data() != nullptr) {
        base::Status warm = run->setup.engine->warm_up(run->setup.settings);
        if (warm.ok()) warm = run->setup.engine->measure_messages(run->setup.settings);
        if (!warm.ok()) {  // the others wait on their devices, where no agreement reaches them: the end of this process does
            ranks.world().abandon();
            return warm.error();
        }
    }
    MILLRACE_TRY(agree(load(*run, &ranks, begin)));
    std::optional<record::RunDirectory> directory;
    base::Status opened = base::ok();
    if (ranks.leads()) {
        auto found = open_directory(*run, request, begin);
        if (found.ok())
            directory = std::move(found).value();
        else
            opened = found.error();
    }
    MILLRACE_TRY(agree(opened));
    MILLRACE_LET(out, ranks.from_first(run->out.string()));
    run->out = out;
    waits.reset();
    auto result = directory ? lead(*directory, *run, &ranks, request, listeners, clock) : follow(*run, ranks, request, clock);
    // Before the engine goes, whose communicator would wait for the others. An error without a text all ranks have.
    if (!result.ok() && (ranks.leads() || !result.error().message.empty())) ranks.world().abandon();
    return result;
}

}  // namespace

base::Result<RunResult> train(const base::Recipe& recipe, const TrainRequest& request, const std::vector<Listener*>& listeners,
                              const base::Clock& clock) {
    if (request.resume && !request.init.empty())
        return base::Error{"--init starts a new run and --resume continues one with its own weights; give one of the two",
                           request.init.string()};
    if (request.group != nullptr && request.group->size() > 1) {
        MILLRACE_LET(ranks, Ranks::open(*request.group, recipe));
        return train_together(recipe, request, *ranks, listeners, clock);
    }
    Beginning begin;
    // First of all: a process that still writes this run may be about to replace the checkpoint.
    if (request.resume) MILLRACE_SET(begin.lock, record::lock_run(request.out));
    MILLRACE_LET(run, prepare(recipe, request, nullptr, begin));
    MILLRACE_TRY(load(run, nullptr, begin));
    MILLRACE_LET(directory, open_directory(run, request, begin));
    return lead(*directory, run, nullptr, request, listeners, clock);
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
