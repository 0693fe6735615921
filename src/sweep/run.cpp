#include "sweep/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <random>

#include "base/version.h"
#include "record/run_directory.h"
#include "search/importance.h"
#include "storage/journal.h"
#include "sweep/page.h"
#include "train/trainer.h"

namespace millrace::sweep {
namespace {

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
    data.command = fmt::format("{}", fmt::join(request.command, " "));
    report.page = (out / "sweep.html").string();
    MILLRACE_TRY(io::write_atomically(report.page, page(data)));
    return base::ok();
}

Result<RunReport> run_in(const StudyFile& study, const RunRequest& request, const io::Path& out, LaneFactory& factory,
                         const base::Clock& clock) {
    WorkerOptions options;
    options.database = request.database.empty() ? (out / "sweep.db").string() : request.database;
    options.slices = out / "slices";
    options.worker = worker_name();
    options.attributes = {{"run", std::filesystem::absolute(out).string()}, {"millrace", base::version()}};
    options.lanes = request.lanes;
    options.time = request.time;
    options.grace = request.grace;
    options.heartbeat = request.grace / 6;
    options.stop = request.stop;
    options.on_epoch = request.on_epoch;
    MILLRACE_LET(worker, Worker::open(study, options, factory, clock));
    MILLRACE_TRY(worker->run());
    RunReport report;
    report.out = out.string();
    report.was_stopped = worker->was_stopped();
    report.is_out_of_time = worker->is_out_of_time();
    report.progress = worker->progress();
    report.programs = worker->programs_built();
    MILLRACE_TRY(write_results(study, request, *worker, out, report));
    return report;
}

}  // namespace

Result<RunReport> run_study(const StudyFile& study, const RunRequest& request, LaneFactory& factory, const base::Clock& clock) {
    record::Manifest manifest;
    manifest.command = request.command;
    manifest.recipe = study.recipe.to_json();
    manifest.device = study.recipe.text("device");
    manifest.versions = {{"compiler", base::compiler()}};
    io::Path out = request.out;
    if (request.number_if_taken && !request.resume) MILLRACE_SET(out, train::claim_run_directory(out));
    std::int64_t epochs = 0;
    RunRequest counted = request;
    counted.on_epoch = [&](const Progress& progress) {
        epochs = progress.trial_epochs;
        if (request.on_epoch) request.on_epoch(progress);
    };
    std::optional<RunReport> report;
    base::Error error;
    {
        MILLRACE_LET(directory, record::RunDirectory::open(
                                    out, request.resume ? record::RunStart::kResume : record::RunStart::kNew, manifest));
        auto ran = run_in(study, counted, out, factory, clock);
        if (ran.ok()) {
            report = std::move(ran).value();
            MILLRACE_TRY(directory.finish(report->was_stopped ? record::RunStatus::kInterrupted : record::RunStatus::kFinished, 0,
                                          report->was_stopped ? "a signal stopped the sweep" : "the sweep ended"));
            return *report;
        }
        error = ran.error();
        (void)directory.finish(record::RunStatus::kFailed, error.exit_status, error.text());
    }
    std::error_code ignored;
    if (!request.resume && epochs == 0) std::filesystem::remove_all(out, ignored);
    return error;
}

}  // namespace millrace::sweep
