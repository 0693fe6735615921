#include "sweep/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <random>
#include <thread>

#include "base/version.h"
#include "io/pending_file.h"
#include "record/run_directory.h"
#include "search/trial.h"
#include "storage/study.h"
#include "sweep/page.h"
#include "train/trainer.h"

namespace millrace::sweep {
namespace {

constexpr const char* kPage = "sweep.html";
constexpr const char* kDatabase = "sweep.db";
constexpr const char* kStudyEvent = "study";  ///< the study is in its database

std::string worker_name() {
    char host[256] = "host";
    (void)gethostname(host, sizeof host - 1);
    std::random_device device;
    return fmt::format("{}-{}-{:08x}", host, getpid(), device());
}

/// The recipe of the best finalist, with what is worth knowing about it.
Status write_best(const StudyFile& study, const FinalistResult& best, const io::Path& path) {
    std::string text = fmt::format("# The best of study {}, from {}.\n", study.name, study.path);
    for (std::size_t i = 0; i < study.objectives.size(); ++i)
        text += fmt::format("# {} {:.6g} +- {:.2g} over {} seeds\n", study.objectives[i].metric, best.objectives[i].mean,
                            best.objectives[i].spread, best.objectives[i].count);
    if (!best.history.empty())
        text += fmt::format("# Its parameters changed while it trained; these are the last. From epoch on, values: {}\n",
                            best.history);
    text += recipe_of(study, best.configuration, static_cast<std::uint64_t>(study.recipe.integer("seed"))).to_toml();
    MILLRACE_TRY(io::write_atomically(path, text));
    return base::ok();
}

/// The study as its page shows it: the trials, and what `report` has so far.
PageData page_of(const StudyFile& study, const RunRequest& request, std::vector<storage::StoredTrial> stored,
                 const RunReport& report) {
    PageData data{study.name, study.space, study.objectives,           {}, std::move(stored), {}, report.importance,
                  {},         study.path,  report.progress.times.total};
    for (const Constraint& constraint : study.constraints) data.constraints.push_back(constraint.text());
    for (const FinalistResult& finalist : report.finalists) {
        const std::vector<std::int64_t>& judged = finalist.reruns.empty() ? finalist.trials : finalist.reruns;
        search::Objectives mean;
        for (std::size_t i = 0; i < study.objectives.size(); ++i)
            mean.push_back(study.objectives[i].signed_value(finalist.objectives[i].mean));
        data.finalists.push_back({finalist.configuration, judged, std::move(mean)});
    }
    if (!report.finalists.empty())
        for (const auto& [name, of] : report.finalists.front().test)
            data.test += fmt::format("{}{} {}", data.test.empty() ? "" : ", ", name, summary_text(of));
    data.command = fmt::format("{}", fmt::join(request.command, " "));
    return data;
}

Status write_results(const StudyFile& study, const RunRequest& request, Worker& worker, const io::Path& out, RunReport& report) {
    Ledger& ledger = worker.ledger();
    report.finalists = finalist_results(ledger, study);
    report.importance = search::parameter_importance(study.space, ledger.searched(), 0, study.sampler.seed);
    if (!report.finalists.empty()) {
        report.best_recipe = (out / "best.toml").string();
        MILLRACE_TRY(write_best(study, report.finalists.front(), report.best_recipe));
    }
    MILLRACE_LET(stored, ledger.stored());
    if (!request.journal.empty()) MILLRACE_TRY(storage::write_journal(request.journal, study.description(), stored));
    report.page = (out / kPage).string();
    MILLRACE_TRY(io::write_atomically(report.page, page(page_of(study, request, std::move(stored), report))));
    return base::ok();
}

/// The page while the search goes on. Between two of them lies fifty times what writing one took, so that takes 2 % of the time
/// at most.
class PageInBetween {
public:
    PageInBetween(const StudyFile& study, const RunRequest& request, io::Path path, const base::Clock& clock)
        : study_(study), request_(request), path_(std::move(path)), clock_(clock) {}

    void write(Worker& worker, const Progress& progress) {
        const auto begin = clock_.now();
        if (begin < next_) return;
        auto stored = worker.ledger().stored();
        RunReport report;
        report.progress = progress;
        if (stored.ok()) (void)io::write_atomically(path_, page(page_of(study_, request_, std::move(stored).value(), report)));
        next_ = clock_.now() + std::max<std::chrono::nanoseconds>(kPause, 50 * (clock_.now() - begin));
    }

private:
    static constexpr std::chrono::seconds kPause{2};

    const StudyFile& study_;
    const RunRequest& request_;
    const io::Path path_;
    const base::Clock& clock_;
    std::chrono::nanoseconds next_{};
};

/// A database that is gone must not begin anew without a word. A run that was killed before it had one may.
Status check_database(const io::Path& out) {
    std::error_code missing;
    const io::Path file = out / kDatabase;
    if (const auto bytes = std::filesystem::file_size(file, missing); !missing && bytes > 0) return base::ok();
    const auto manifest = record::read_manifest(out);
    const bool had_one =
        manifest.ok() && (manifest->status == record::RunStatus::kFinished ||
                          manifest->status == record::RunStatus::kInterrupted || record::has_event(out, kStudyEvent));
    if (!had_one) return base::ok();
    return Error{fmt::format("{}, though the run has a study; put the file back, or search anew with another --out",
                             missing ? "is missing" : "is empty"),
                 file.string()};
}

/// Runs every rank's worker, and returns when all ranks have come back from theirs: mpirun ends those that another one leaves
/// behind. `stop` becomes the signal in `own_stop` (may be null) of any rank, or SIGTERM where a rank failed; workers end soon
/// after. A thread of each rank meets those of the others several times a second, also while they train: asleep in between, for
/// a rank that waits in a collective keeps a processor busy.
Status run_together(comm::Group& group, const std::atomic<int>* own_stop, std::atomic<int>& stop, Worker& worker) {
    struct Now {
        int signal, is_done;
    };
    std::atomic<int> is_done = 0;
    Status met = base::ok();
    const auto meet = [&]() -> Status {
        for (;; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
            if (own_stop != nullptr && *own_stop != 0) stop = own_stop->load();
            MILLRACE_LET(ranks, group.all_of(Now{stop, is_done}));
            const auto stopped = std::ranges::find_if(ranks, [](const Now& rank) { return rank.signal != 0; });
            if (stopped != ranks.end()) stop = stopped->signal;
            if (std::ranges::all_of(ranks, [](const Now& rank) { return rank.is_done != 0; })) return base::ok();
        }
    };
    std::jthread meetings([&] {
        met = meet();
        if (!met.ok()) stop = SIGTERM;
    });
    const Status worked = worker.run();
    if (!worked.ok() && stop == 0) stop = SIGTERM;
    is_done = 1;
    meetings.join();
    return met.ok() ? group.agree(worked) : met;
}

/// `report` says what was done even where this fails.
Status run_in(const StudyFile& study, const RunRequest& request, const io::Path& out, LaneFactory& factory,
              const base::Clock& clock, comm::Group& group, record::RunDirectory* directory, RunReport& report) {
    std::atomic<int> stop = 0;
    WorkerOptions options;
    static_cast<WorkOptions&>(options) = request;
    options.database = request.database.empty() ? (out / kDatabase).string() : request.database;
    options.slices = out / "slices";
    options.worker = worker_name();
    options.attributes = {{"run", std::filesystem::absolute(out).string()}, {"millrace", base::version()}};
    options.heartbeat = request.grace / 6;
    if (group.size() > 1) options.slice_bytes = 0;  // in files, where other ranks find what they take over
    if (group.size() > 1) options.stop = &stop;
    PageInBetween in_between(study, request, out / kPage, clock);
    std::unique_ptr<Worker> worker;
    options.on_epoch = [&](const Progress& progress) {
        if (request.on_epoch) request.on_epoch(progress);
        if (request.stop != nullptr && *request.stop != 0) stop = request.stop->load();  // also where other ranks hang
        if (group.rank() == 0) in_between.write(*worker, progress);
    };
    const auto open = [&](bool is_own_turn) -> Status {
        if (!is_own_turn) return base::ok();
        MILLRACE_SET(worker, Worker::open(study, options, factory, clock));
        return directory == nullptr ? base::ok() : directory->events().append(kStudyEvent, "the study is in its database");
    };
    // The first one makes the study that the others find.
    MILLRACE_TRY(group.agree(open(directory != nullptr)));
    MILLRACE_TRY(group.agree(open(directory == nullptr)));
    Status ran = group.size() > 1 ? run_together(group, request.stop, stop, *worker) : worker->run();
    if (group.abandoned()) return ran;
    if (ran.ok() && group.size() > 1 && group.rank() == 0) ran = worker->ledger().refresh();
    report.out = out.string();
    if (options.stop != nullptr) report.signal = *options.stop;
    report.was_stopped = worker->was_stopped();
    report.is_out_of_time = worker->is_out_of_time();
    report.progress = worker->progress();
    report.programs = worker->programs_built();
    MILLRACE_LET(epochs, group.all_of(report.progress.trial_epochs));
    report.progress.trial_epochs = std::accumulate(epochs.begin(), epochs.end(), std::int64_t{0});
    return ran.ok() && group.rank() == 0 ? write_results(study, request, *worker, out, report) : ran;
}

/// On rank 0: claims and opens the run directory, in `out` from then on.
Status open_directory(const StudyFile& study, const RunRequest& request, const comm::Group& group, io::Path& out,
                      std::optional<record::RunDirectory>& directory) {
    if (group.rank() != 0) return base::ok();
    if (request.database.empty() && std::ranges::count(group.hosts(), group.hosts().front()) != group.size())
        return Error{"ranks on several hosts cannot share a file as their database; give them one on a server", "--join"};
    if (!request.journal.empty()) MILLRACE_TRY(io::check_writable(request.journal));
    if (request.resume && request.database.empty()) MILLRACE_TRY(check_database(request.out));
    record::Manifest manifest;
    manifest.command = request.command;
    manifest.recipe = study.recipe.to_json();
    manifest.device = study.recipe.text("device");
    manifest.versions = {{"compiler", base::compiler()}};
    if (request.number_if_taken && !request.resume) MILLRACE_SET(out, train::claim_run_directory(out));
    MILLRACE_SET(directory,
                 record::RunDirectory::open(out, request.resume ? record::RunStart::kResume : record::RunStart::kNew, manifest));
    return base::ok();
}

}  // namespace

Result<RunReport> run_study(const StudyFile& study, const RunRequest& request, LaneFactory& factory, const base::Clock& clock) {
    comm::Group alone;
    comm::Group& group = request.group != nullptr ? *request.group : alone;
    std::optional<record::RunDirectory> directory;
    io::Path out = request.out;
    MILLRACE_TRY(group.agree(open_directory(study, request, group, out, directory)));
    MILLRACE_LET(folders, group.all_lists(std::filesystem::absolute(out).string()));
    if (group.rank() != 0) out = folders.front();
    RunReport report;
    const Status ran = run_in(study, request, out, factory, clock, group, directory ? &*directory : nullptr, report);
    if (ran.ok()) {
        if (directory)
            MILLRACE_TRY(directory->finish(report.was_stopped ? record::RunStatus::kInterrupted : record::RunStatus::kFinished, 0,
                                           report.was_stopped ? "a signal stopped the sweep" : "the sweep ended"));
        return report;
    }
    if (!directory) return ran.error();
    (void)directory->finish(record::RunStatus::kFailed, ran.error().exit_status, ran.error().text());
    directory.reset();
    std::error_code ignored;
    if (!request.resume && report.progress.trial_epochs == 0) std::filesystem::remove_all(out, ignored);
    return ran.error();
}

}  // namespace millrace::sweep
