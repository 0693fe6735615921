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
#include "train/loop.h"
#include "train/ranks.h"
#include "train/resume.h"
#include "train/selection.h"
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

Path numbered(const Path& base, int number) { return number == 1 ? base : Path(fmt::format("{}-{}", base.string(), number)); }

/// A run from its recipe to its end, on one of `ranks`.
class Training {
public:
    Training(base::Recipe recipe, const TrainRequest& request, Ranks& ranks, const std::vector<Listener*>& listeners,
             const base::Clock& clock)
        : request_(request), ranks_(ranks), listeners_(listeners), clock_(clock), out_(request.out), recipe_(std::move(recipe)) {}

    base::Result<RunResult> run();

private:
    base::Status take_lock();
    base::Status find_initial_weights();
    base::Status prepare();
    base::Status load();
    base::Status open_directory();
    base::Status begin();
    base::Result<RunResult> run_in(record::RunDirectory* directory);
    base::Result<RunResult> lead(record::RunDirectory& directory);

    const TrainRequest& request_;
    Ranks& ranks_;
    const std::vector<Listener*>& listeners_;
    const base::Clock& clock_;
    Path out_;
    std::optional<record::RunLock> lock_;
    Standing standing_;
    std::optional<InitialWeights> init_;
    base::Recipe recipe_;  ///< of all members; changes with the structure of the run
    Setup setup_;
    RunState state_;  ///< of this rank's members
    data::StoredData stored_;
    models::Course course_;
    std::optional<record::RunDirectory> directory_;  ///< on rank 0, which alone writes
};

/// With `directory` as rank 0, which alone writes; without it what decides, as on rank 0, and what gives weights to it.
base::Result<RunResult> Training::run_in(record::RunDirectory* directory) {
    record::EventWriter* const events = directory != nullptr ? &directory->events() : nullptr;
    const io::Path folder = directory != nullptr ? directory->held().path() : io::Path();
    std::optional<io::CheckpointStore> checkpoints;
    std::unique_ptr<Telemetry> telemetry;
    if (directory != nullptr) {
        MILLRACE_TRY(cut_metrics(directory->metrics(), state_.metrics_offset));
        const CheckpointSettings& keeping = setup_.settings.checkpoint;
        MILLRACE_SET(checkpoints, io::CheckpointStore::open(directory->checkpoints(), {keeping.keep, keeping.keep_bytes},
                                                            directory->path() / "checkpoints"));
        std::unique_ptr<sense::Source> source;
        if (setup_.settings.telemetry.interval.count() > 0)
            source = request_.machine ? request_.machine() : sense::open_machine(sense::machine_options());
        MILLRACE_SET(telemetry, Telemetry::start(setup_.settings.telemetry, folder, std::move(source), *events, clock_));
    }
    Loop loop(setup_, state_, out_.string(), request_.stop, clock_, ranks_);
    MILLRACE_LET(family, models::find_family(setup_.settings.model));
    MILLRACE_LET(structure_settings, read_structure(recipe_, *family));
    StructureChanges structure({loop, recipe_, *family, structure_settings, request_.adapt_source, stored_, events});
    Selection selection(loop, state_.best, (directory != nullptr ? directory->checkpoints() : out_ / "checkpoints") / "best",
                        [&](const io::LoadedCheckpoint& checkpoint) { return structure.engine_of(checkpoint); });
    Patience patience(loop, state_.staleness, state_.complete);
    DomainScores domains(std::move(course_), folder);
    std::optional<RunFiles> files;
    std::optional<ConfusionPicture> confusion;
    std::optional<RunLog> log;
    std::optional<RunWarnings> warnings;
    if (directory != nullptr) {
        files.emplace(loop, family->run_report, directory->held());
        confusion.emplace(loop, selection, folder);
        log.emplace(loop, directory->metrics(), *telemetry, clock_);
        warnings.emplace(loop, *telemetry, clock_);
    }
    const auto pointer = [](auto& part) { return part ? &*part : nullptr; };
    Checkpoints saver(
        {loop, recipe_, pointer(checkpoints), selection, patience, domains, pointer(log), events, clock_, request_.saves},
        state_.members.empty() ? std::nullopt : std::optional(state_.step));
    // The order of the listeners. Files about the run come before the best weights replace its newest. A report is complete
    // before its row is written: the machine, then the scores. Rows come before the checkpoint that holds their offset in the
    // file. The console and other listeners from outside see what is on the disk. Warnings are printed below the line of their
    // epoch.
    std::vector<Listener*> parts{&structure, pointer(files), telemetry.get(), &selection,        &patience,
                                 &domains,   pointer(log),   &saver,          pointer(confusion)};
    if (directory != nullptr) parts.insert(parts.end(), listeners_.begin(), listeners_.end());
    parts.push_back(pointer(warnings));
    for (Listener* part : parts)
        if (part != nullptr) loop.add(*part);
    return loop.run();
}

/// A run that ended before its first checkpoint begins anew, from where it began.
base::Status Training::find_initial_weights() {
    if (!request_.resume && !request_.init.empty()) {
        MILLRACE_SET(init_, load_initial_weights(request_.init));
    } else if (request_.resume && !standing_.checkpoint) {
        MILLRACE_LET(manifest, record::read_manifest(request_.out));
        if (manifest.init) MILLRACE_SET(init_, reload_initial_weights(*manifest.init));
    }
    return base::ok();
}

/// Everything that may be wrong with a recipe or its data. Ranks agree once within it, before they open their devices.
base::Status Training::prepare() {
    if (request_.resume) {
        auto found = stand_of(request_.out, recipe_);
        if (!found.ok())
            return base::Error{fmt::format("cannot resume {}", request_.out.string()), {}, found.error().exit_status}.because(
                found.error());
        standing_ = std::move(found).value();
        if (standing_.recipe) recipe_ = *standing_.recipe;
    }
    MILLRACE_TRY(find_initial_weights());
    if (standing_.checkpoint || init_) {
        MILLRACE_SET(stored_, models::stored_data(recipe_, init_ ? init_->weights : *standing_.checkpoint));
        if (standing_.checkpoint) stored_.streamed = standing_.state.data.streamed;
    }
    MILLRACE_LET(family, models::find_family(recipe_.text("model.name")));
    MILLRACE_TRY(read_structure(recipe_, *family));
    MILLRACE_LET(own, ranks_.own_part(recipe_));
    // The same split and forms as before, even if more memory is free or others are faster now: these round differently.
    MILLRACE_SET(
        setup_,
        set_up(own, true, {request_.adapt_source, standing_.state.micro_batch, stored_, true, standing_.state.forms, &ranks_}));
    return base::ok();
}

/// Puts the run where it stands, before anything is written.
base::Status Training::load() {
    state_ = ranks_.own_part(standing_.state);
    if (standing_.checkpoint) {
        if (!(standing_.state.data == setup_.data))
            return recipe_.bad("data.path",
                               fmt::format("the run was trained on other data ({}; here: {}); resume with the same files",
                                           data_text(standing_.state.data, setup_.unit), data_text(setup_.data, setup_.unit)));
        ranks_.keep_own(*standing_.checkpoint);
        MILLRACE_TRY(restore(*setup_.engine, setup_.settings, state_, *standing_.checkpoint));
        standing_.checkpoint.reset();
    } else {
        state_.epoch_sums = StepSums(setup_.settings.members);
        if (init_) {
            ranks_.keep_own(init_->weights);
            MILLRACE_TRY(models::load_initial(setup_.engine->store(), init_->weights, setup_.engine->attachments()));
        }
    }
    RunSettings all = setup_.settings;
    all.seeds = read_seeds(recipe_);
    MILLRACE_SET(course_, course_of(recipe_, all));
    course_.epochs = standing_.state.domains;
    return base::ok();
}

base::Status Training::open_directory() {
    if (!ranks_.leads()) return base::ok();
    record::Manifest manifest;
    manifest.command = request_.command;
    manifest.recipe = recipe_.to_json();
    manifest.device = setup_.device;
    manifest.versions = {{"compiler", base::compiler()}};
    if (request_.number_if_taken && !request_.resume) MILLRACE_SET(out_, claim_run_directory(request_.out));
    if (init_) {
        manifest.init = init_->origin;
        MILLRACE_LOG(info, "the weights start from {}", init_->origin.path);
        init_.reset();
    }
    MILLRACE_SET(directory_,
                 record::RunDirectory::open(out_, request_.resume ? record::RunStart::kResume : record::RunStart::kNew,
                                            std::move(manifest), std::move(lock_)));
    return base::ok();
}

/// As rank 0.
base::Result<RunResult> Training::lead(record::RunDirectory& directory) {
    auto result = run_in(&directory);
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
    for (Listener* listener : listeners_) listener->on_finish(*result);  // in any case: the weights are saved
    if (!finished.ok()) return finished.error();
    return result;
}

/// First of all: a process that still writes this run may be about to replace the checkpoint.
base::Status Training::take_lock() {
    if (request_.resume && ranks_.leads()) MILLRACE_SET(lock_, record::lock_run(request_.out));
    return base::ok();
}

/// Up to the first step.
base::Status Training::begin() {
    const auto waits = ranks_.watchdog().pause();
    comm::Group& world = ranks_.world();
    MILLRACE_TRY(world.agree(take_lock()));
    const base::Status prepared = prepare();
    if (world.refused()) return prepared.error();
    MILLRACE_TRY(world.agree(prepared));
    MILLRACE_TRY(ranks_.all_equal(data_text(setup_.data, setup_.unit), "data"));
    MILLRACE_TRY(ranks_.all_equal(setup_.engine->plan_to_share(), "plan"));
    double message_share = 0;
    if (ranks_.shares_rows()) {
        auto measured = setup_.engine->measure_messages(setup_.settings);
        // The others wait on their devices, where no agreement reaches them: the end of this process does.
        if (!measured.ok()) world.abandon();
        MILLRACE_SET(message_share, std::move(measured));
    }
    setup_.ranks = ranks_.text(message_share);
    MILLRACE_TRY(world.agree(load()));
    MILLRACE_TRY(world.agree(open_directory()));
    MILLRACE_LET(folders, world.all_lists(out_.string()));
    out_ = folders.front();
    return base::ok();
}

base::Result<RunResult> Training::run() {
    MILLRACE_TRY(begin());
    auto result = directory_ ? lead(*directory_) : run_in(nullptr);
    // Before the engine goes, whose communicator would wait for the others. An error without a text all ranks have.
    if (!result.ok() && (ranks_.leads() || !result.error().message.empty())) ranks_.world().abandon();
    return result;
}

}  // namespace

base::Result<RunResult> train(const base::Recipe& recipe, const TrainRequest& request, const std::vector<Listener*>& listeners,
                              const base::Clock& clock) {
    if (request.resume && !request.init.empty())
        return base::Error{"--init starts a new run and --resume continues one with its own weights; give one of the two",
                           request.init.string()};
    comm::Group alone;
    MILLRACE_LET(ranks, Ranks::open(request.group != nullptr ? *request.group : alone, recipe));
    return Training(recipe, request, *ranks, listeners, clock).run();
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
