#include "sweep/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "storage/database.h"
#include "sweep/finals.h"
#include "train/recipe_keys.h"

namespace millrace::sweep {

namespace {

constexpr double kLongEpoch = 10;  ///< seconds: beyond it a stop does not wait for the end of the epoch

int most_lanes(const StudyFile& study) {
    const std::int64_t useful = std::max(study.trials, study.finalists * study.replicates);
    if (study.scheduler.name == "pbt") return static_cast<int>(std::min(study.scheduler.population, useful));
    return static_cast<int>(std::min<std::int64_t>(useful, 1024));
}

/// Trials of one study differ in what is searched alone. A stored one tells what the others were trained with.
Status check_same_recipe(const StudyFile& study, const Ledger& ledger) {
    for (const search::Trial& trial : ledger.searched()) {
        const std::string text = ledger.attribute(trial.number, kRecipeAttribute);
        if (text.empty()) continue;
        const std::string place = fmt::format("trial {}", trial.number);
        MILLRACE_LET(before, train::parse_recipe(text, place, {}));
        for (const base::RecipeDifference& difference : before.differences(study.recipe)) {
            const bool is_free = train::may_change_on_resume(difference.name) && difference.name != "train.epochs";
            if (!is_free && study.searched.find(difference.name) == nullptr)
                return Error{
                    fmt::format("the study was started with {} = {}, not {}; go on with the same value or start a new one "
                                "with --out",
                                difference.name, difference.left, difference.right),
                    study.path};
        }
        return base::ok();
    }
    return base::ok();
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::open(const StudyFile& study, WorkerOptions options, LaneFactory& factory,
                                             const base::Clock& clock) {
    const auto structural = structural_parameters(study.space, factory.fusible_keys(study.recipe));
    if (study.scheduler.name == "pbt") {
        if (!structural.empty()) {
            const search::Parameter& parameter = study.space.parameters[structural.front()];
            return Error{fmt::format("pbt changes parameters of running trials, and {} needs another program; fix it under [set]",
                                     parameter.name),
                         parameter.place};
        }
        if (options.lanes != 0 && options.lanes < study.scheduler.population)
            return Error{fmt::format("pbt trains {} trials side by side; --lanes {} are too few, or give population = {}",
                                     study.scheduler.population, options.lanes, options.lanes),
                         study.path};
        if (options.lanes == 0) options.lanes = static_cast<int>(study.scheduler.population);
    }
    MILLRACE_LET(ledger, Ledger::open(options.database, study.description(), options.worker, clock));
    MILLRACE_TRY(check_same_recipe(study, ledger));
    MILLRACE_LET(sampler, search::make_sampler(study.space, study.sampler));
    MILLRACE_LET(scheduler, search::make_scheduler(study.space, study.scheduler));
    return std::unique_ptr<Worker>(
        new Worker(study, std::move(options), factory, clock, std::move(ledger), std::move(sampler), std::move(scheduler)));
}

Worker::Worker(const StudyFile& study, WorkerOptions options, LaneFactory& factory, const base::Clock& clock, Ledger ledger,
               std::unique_ptr<search::Sampler> sampler, std::unique_ptr<search::Scheduler> scheduler)
    : study_(study),
      options_(std::move(options)),
      factory_(factory),
      clock_(clock),
      began_(clock.now()),
      ledger_(std::move(ledger)),
      sampler_(std::move(sampler)),
      scheduler_(std::move(scheduler)),
      structural_(structural_parameters(study.space, factory.fusible_keys(study.recipe))),
      slices_(options_.slices, options_.slice_bytes, study.space),
      programs_(factory, options_.lanes, most_lanes(study), study.recipe),
      heartbeat_(
          [this]() -> Result<storage::Study> {
              MILLRACE_LET(database, storage::open_database(options_.database));
              return storage::Study::open(std::move(database), study_.description(), options_.worker, clock_);
          },
          options_.heartbeat) {}

Status Worker::run() {
    const Status worked = work();
    const Status left = leave();
    times_.total = std::chrono::duration<double>(clock_.now() - began_).count();
    return worked.ok() ? left : worked;
}

Status Worker::work() {
    while (!must_stop()) {
        if (!is_out_of_time_ && options_.time && clock_.now() - began_ >= *options_.time) {
            is_out_of_time_ = true;
            MILLRACE_TRY(release_lanes());
            // Finals go on; the others stay this worker's and are given back at the end.
            for (auto& [structure, queue] : queues_)
                std::erase_if(queue, [&](std::int64_t number) { return !held_.at(number).is_final; });
            std::erase_if(queues_, [](const auto& queue) { return queue.second.empty(); });
        }
        MILLRACE_TRY(ledger_.refresh_if_due());
        MILLRACE_TRY(fill());
        if (program_ != nullptr && program_->running() > 0) {
            MILLRACE_TRY(run_epoch());
            if (options_.on_epoch) options_.on_epoch(progress());
            continue;
        }
        MILLRACE_TRY(ledger_.refresh());
        adopt();
        if (queued() > 0) continue;
        if (ledger_.has_foreign() && !is_out_of_time_) {
            (void)timed(times_.waiting, [&] {
                std::this_thread::sleep_for(std::chrono::milliseconds{200});
                return 0;
            });
            continue;
        }
        MILLRACE_LET(goes_on, finish_best());
        if (goes_on) continue;
        MILLRACE_LET(added, add_finals());
        if (!added) return ledger_.has_foreign() ? base::ok() : ledger_.prune_paused();
    }
    was_stopped_ = true;
    return base::ok();
}

/// What the study asks for is measured: before the first epoch is spent.
Status Worker::check_metrics() {
    if (has_checked_metrics_) return base::ok();
    MILLRACE_LET(names, timed(times_.epochs, [&] { return program_->runner->metrics(); }));
    std::vector<std::string> wanted;
    for (const storage::Objective& objective : study_.objectives) wanted.push_back(objective.metric);
    for (const Constraint& constraint : study_.constraints) wanted.push_back(constraint.metric);
    for (const std::string& name : wanted)
        if (std::ranges::find(names, name) == names.end())
            return Error{fmt::format("no trial measures \"{}\"; there are {}", name, fmt::join(names, ", ")), study_.path};
    has_checked_metrics_ = true;
    return base::ok();
}

Status Worker::run_epoch() {
    MILLRACE_TRY(check_metrics());
    const bool is_long = last_epoch_ > kLongEpoch;
    if (is_long)
        for (const auto& [lane, number] : program_->filled()) MILLRACE_TRY(save_lane(lane, number));
    // From here on: a device that fails leaves part of an epoch behind, as a stop does.
    program_->is_torn = true;
    const auto before = clock_.now();
    // A short epoch is finished: its lanes can be saved then.
    const bool is_first = last_epoch_ == 0;
    auto scores =
        timed(times_.epochs, [&] { return program_->runner->run_epoch(is_long || is_first ? options_.stop : nullptr); });
    if (!scores.ok()) return scores.error();
    last_epoch_ = std::chrono::duration<double>(clock_.now() - before).count();
    if (scores->empty()) return base::ok();
    program_->is_torn = false;
    std::vector<storage::Report> reports;
    for (std::size_t lane = 0; lane < scores->size(); ++lane)
        if (const auto number = program_->trials[lane]; number && (*scores)[lane])
            MILLRACE_SET(reports.emplace_back(), enter(*number, *(*scores)[lane]));
    trial_epochs_ += static_cast<std::int64_t>(reports.size());
    MILLRACE_LET(lost, ledger_.report(reports));
    for (const std::int64_t number : lost) forget(number);
    return apply_decisions();
}

/// Puts the trials of all lanes aside. One that cannot be saved holds back none of the others.
Status Worker::release_lanes() {
    if (program_ == nullptr) return base::ok();
    Status all = base::ok();
    for (const auto& [lane, number] : program_->filled()) {
        const Status released = release_lane(lane, number);
        if (released.ok())
            queues_[held_.at(number).structure].push_front(number);
        else if (all.ok())
            all = released;
    }
    return all;
}

/// A trial before its first epoch has no state worth keeping.
Status Worker::save_lane(int lane, std::int64_t number) {
    const Held& trial = held_.at(number);
    if (trial.epoch == 0) return base::ok();
    MILLRACE_LET(slice, timed(times_.moving, [&] { return program_->runner->save(lane); }));
    return slices_.put(number, {trial.epoch, trial.history, std::move(slice)}, trial.identity);
}

/// Saves the trial of a lane and empties it. Of a torn one the state before stays.
Status Worker::release_lane(int lane, std::int64_t number) {
    if (!program_->is_torn) MILLRACE_TRY(save_lane(lane, number));
    program_->clear(lane);
    return base::ok();
}

void Worker::forget(std::int64_t number) {
    if (program_ != nullptr)
        if (const auto lane = program_->lane_of(number)) program_->clear(*lane);
    held_.erase(number);
}

Status Worker::leave() {
    const bool is_unfinished = !held_.empty() || was_stopped_ || is_out_of_time_;
    Status released = release_lanes();
    // Slices of paused trials are worth their room on the disk when the study is to go on.
    Status saved = is_unfinished ? slices_.flush() : base::ok();
    std::vector<std::int64_t> numbers;
    for (const auto& [number, trial] : held_) numbers.push_back(number);
    held_.clear();
    queues_.clear();
    Status given = numbers.empty() ? base::ok() : ledger_.give_back(numbers);
    heartbeat_.hold({});  // not before: saving may take longer than others wait
    for (Status* status : {&released, &saved, &given})
        if (!status->ok()) return *status;
    return base::ok();
}

Progress Worker::progress() const {
    Progress out;
    out.wanted = study_.trials;
    for (const search::Trial& trial : ledger_.searched()) {
        ++out.started;
        switch (trial.state) {
            case search::TrialState::running: ++out.running; break;
            case search::TrialState::paused: ++out.paused; break;
            case search::TrialState::complete: ++out.complete; break;
            case search::TrialState::pruned: ++out.pruned; break;
            case search::TrialState::failed: ++out.failed; break;
        }
    }
    const std::vector<std::size_t> order = search::best_first(ledger_.searched());
    if (!order.empty()) {
        const search::Trial& best = ledger_.searched()[order.front()];
        if (best.state != search::TrialState::failed && best.violation() <= 0) out.best = trial_text(study_, best);
    }
    out.lanes = program_ == nullptr ? programs_.lanes() : static_cast<std::int64_t>(program_->trials.size());
    out.busy_lanes = program_ == nullptr ? 0 : static_cast<std::int64_t>(program_->running());
    out.trial_epochs = trial_epochs_;
    out.is_final = is_training_finals_;
    out.finished = finished_;
    times_.total = std::chrono::duration<double>(clock_.now() - began_).count();
    out.times = times_;
    const double done = study_.scheduler.name == "none"
                            ? static_cast<double>(trial_epochs_) / static_cast<double>(out.wanted * study_.scheduler.rungs.last)
                            : static_cast<double>(out.started - out.running) / static_cast<double>(out.wanted);
    if (done > 0 && done <= 1 && !out.is_final) out.seconds_left = times_.total / done * (1 - done);
    if (options_.time) {
        const double limit = std::chrono::duration<double>(*options_.time).count() - times_.total;
        out.seconds_left = out.seconds_left < 0 ? limit : std::min(out.seconds_left, limit);
    }
    return out;
}

}  // namespace millrace::sweep
