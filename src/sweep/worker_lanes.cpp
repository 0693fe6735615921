// The worker's lanes: which program runs, which trials stand in its lanes, and what the scheduler does with them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "sweep/worker.h"

namespace millrace::sweep {

using search::Action;
using search::TrialState;

namespace {

/// Texts for people and programs; a number that is not finite is null.
std::string metrics_json(const std::map<std::string, double>& metrics) { return base::json_text(nlohmann::json(metrics)); }

}  // namespace

Status Worker::fill() {
    MILLRACE_TRY(queue_trials());
    if (should_switch()) MILLRACE_TRY(switch_program());
    if (program_ == nullptr) return base::ok();
    auto& queue = queues_[program_->structure];
    for (auto lane = program_->free_lane(); lane && !queue.empty(); lane = program_->free_lane()) {
        const std::int64_t number = queue.front();
        queue.pop_front();
        const Status placed = place(*lane, number);
        if (!placed.ok()) MILLRACE_TRY(refuse({number}, placed.error()));
    }
    return base::ok();
}

/// How many lanes serve `ready` trials where `available` could be had. At the end of a study, when no new trials come, a smaller
/// program steps faster: empty lanes take as long as full ones.
int Worker::lanes_for(std::size_t ready, std::size_t available) const {
    constexpr std::size_t kWorthIt = 4;
    const bool is_tail = is_out_of_time_ || sampler_is_done_ || std::ssize(ledger_.searched()) >= study_.trials;
    return static_cast<int>(is_tail && kWorthIt * ready <= available ? std::max<std::size_t>(ready, 1) : available);
}

/// Another program is taken up when more than twice the trials that run here wait for it, which keeps switches rare.
bool Worker::should_switch() const {
    const std::size_t here = program_ == nullptr ? 0 : program_->running();
    if (here > 0 && queued_here() > 0) return false;
    if (std::ranges::any_of(queues_, [&](const auto& queue) { return queue.second.size() > 2 * here; })) return true;
    return here > 0 && lanes_for(here, program_->trials.size()) < static_cast<int>(program_->trials.size());
}

Status Worker::switch_program() {
    MILLRACE_TRY(release_lanes());
    program_ = nullptr;
    const auto longest = std::ranges::max_element(queues_, {}, [](const auto& queue) { return queue.second.size(); });
    const std::string structure = longest->first;
    const Held& first = held_.at(longest->second.front());
    const int lanes = lanes_for(longest->second.size(), static_cast<std::size_t>(programs_.lanes()));
    auto program = timed(times_.building, [&] { return programs_.get(structure, first.recipe, lanes); });
    if (!program.ok()) {
        const std::vector<std::int64_t> numbers(longest->second.begin(), longest->second.end());
        queues_.erase(structure);
        MILLRACE_TRY(check_device(program.error()));
        return refuse(numbers, program.error());
    }
    program_ = *program;
    last_epoch_ = 0;
    program_configuration_ = ledger_.trial(longest->second.front()).configuration;
    started_here_ = longest->second.size();
    return base::ok();
}

/// An error where a configuration that has trained before cannot be built either: the device or the data is gone, and no trial is
/// to blame. All programs were dropped before this one was tried for the last time, so there is memory.
Status Worker::check_device(const Error& error) {
    const auto known =
        std::ranges::find_if(ledger_.searched(), [](const search::Trial& trial) { return !trial.reports.empty(); });
    if (known == ledger_.searched().end()) return error;
    const search::Configuration& configuration = program_configuration_.empty() ? known->configuration : program_configuration_;
    const auto seed = static_cast<std::uint64_t>(study_.recipe.integer("seed"));
    const auto built = timed(times_.building, [&] { return factory_.create(recipe_of(study_, configuration, seed), 1); });
    if (built.ok()) return base::ok();
    return Error{"what has trained before can no longer be built; unfinished trials were given back", "", error.exit_status}
        .because(built.error());
}

/// Trials that cannot be built fail, one by one, once any other could: then it is their values that are wrong. The first one's
/// error is the study's: the data may be missing.
Status Worker::refuse(const std::vector<std::int64_t>& numbers, const Error& error) {
    if (std::ranges::all_of(ledger_.searched(), [](const search::Trial& trial) { return trial.reports.empty(); })) return error;
    MILLRACE_LOG(warn, "trial {}{} cannot be trained: {}", numbers.front(),
                 numbers.size() > 1 ? fmt::format(" and {} like it", numbers.size() - 1) : "", error.text());
    std::vector<storage::Outcome> outcomes;
    for (const std::int64_t number : numbers) {
        outcomes.push_back({number, TrialState::failed, {}, {}, {{kErrorAttribute, error.text()}}});
        slices_.drop(number);
        forget(number);
    }
    MILLRACE_TRY(ledger_.finish(outcomes));
    return base::ok();
}

Status Worker::place(int lane, std::int64_t number) {
    Held& trial = held_.at(number);
    auto saved = slices_.get(number, trial.identity);
    Status placed = base::ok();
    if (saved) {
        placed = timed(times_.moving, [&] { return program_->runner->restore(lane, saved->slice); });
        if (!placed.ok()) {
            MILLRACE_LOG(warn, "the state of trial {} does not fit ({}); it starts from its beginning", number,
                         placed.error().text());
            saved.reset();
        }
    }
    if (saved) {
        trial.epoch = saved->epoch;
        trial.history = saved->history;
        if (!trial.is_final && trial.history.size() > 1) {
            ledger_.set_history(number, trial.history);
            trial.recipe = recipe_of(study_, trial.history.rbegin()->second, trial.seed);
        }
    } else {
        trial.epoch = 0;
        placed = timed(times_.moving, [&] { return program_->runner->fill(lane, trial.recipe); });
    }
    if (!placed.ok()) {
        program_->runner->clear(lane);
        return placed;
    }
    trial.until = trial.is_final || trial.goes_to_end ? study_.scheduler.rungs.last : next_step(number);
    program_->trials[static_cast<std::size_t>(lane)] = number;
    return base::ok();
}

/// What an epoch says of a trial, as a report.
Result<storage::Report> Worker::enter(std::int64_t number, const train::LaneScore& score) {
    Held& trial = held_.at(number);
    trial.epoch = score.epoch;
    trial.metrics = score.metrics;
    trial.diverged = score.diverged;
    const auto metric = [&](const std::string& name) -> Result<double> {
        const auto found = score.metrics.find(name);
        if (found != score.metrics.end()) return found->second;
        return Error{fmt::format("trial {} did not measure \"{}\"", number, name), study_.path};
    };
    storage::Report report{number, trial.epoch, {}, std::nullopt};
    for (const storage::Objective& objective : study_.objectives) {
        MILLRACE_LET(value, metric(objective.metric));
        report.values.push_back(score.diverged ? std::numeric_limits<double>::quiet_NaN() : objective.signed_value(value));
    }
    std::vector<double> violations;
    for (const Constraint& constraint : study_.constraints) {
        MILLRACE_LET(value, metric(constraint.metric));
        violations.push_back(constraint.violation(value));
    }
    ledger_.set_violations(number, std::move(violations));
    const std::vector<std::int64_t> rungs = study_.scheduler.rungs.steps();
    const auto rung = std::ranges::find(rungs, trial.epoch);
    if (rung != rungs.end()) report.rung = rung - rungs.begin();
    return report;
}

/// All reports of the epoch are entered: the scheduler compares trials that ran side by side.
Status Worker::apply_decisions() {
    std::vector<storage::Outcome> outcomes;
    for (const auto& [lane, number] : program_->filled()) MILLRACE_TRY(apply_decision(number, outcomes));
    MILLRACE_TRY(test_finals(outcomes));
    if (outcomes.empty()) return base::ok();
    MILLRACE_LET(lost, ledger_.finish(outcomes));
    for (const storage::Outcome& outcome : outcomes) {
        if (outcome.state != TrialState::paused) slices_.drop(outcome.number);
        forget(outcome.number);
    }
    return base::ok();
}

Status Worker::apply_decision(std::int64_t number, std::vector<storage::Outcome>& outcomes) {
    Held& trial = held_.at(number);
    const search::Trial& known = ledger_.trial(number);
    const search::Objectives& values = known.reports.at(trial.epoch);
    search::Decision decision;
    if (trial.diverged || !search::all_finite(values))
        decision.action = Action::fail;
    else if (trial.epoch >= study_.scheduler.rungs.last)
        decision.action = Action::complete;
    else if (trial.epoch >= trial.until && !trial.is_final)
        decision = scheduler_->decide(ledger_.searched(), ledger_.position(number));

    storage::Outcome outcome{
        number, TrialState::running, {}, known.violations, {{kMetricsAttribute, metrics_json(trial.metrics)}}};
    if (trial.history.size() > 1) outcome.attributes[kHistoryAttribute] = history_text(trial.history);
    switch (decision.action) {
        case Action::proceed: break;
        case Action::copy: MILLRACE_TRY(copy_from(number, decision)); break;
        case Action::pause: {
            const int lane = *program_->lane_of(number);
            MILLRACE_TRY(release_lane(lane, number));
            outcome.state = TrialState::paused;
            break;
        }
        case Action::fail: outcome.state = TrialState::failed; break;
        case Action::prune:
        case Action::complete:
            outcome.state = decision.action == Action::prune ? TrialState::pruned : TrialState::complete;
            outcome.values = values;
            break;
    }
    if (outcome.state != TrialState::running) {
        outcomes.push_back(std::move(outcome));
        return base::ok();
    }
    if (trial.epoch >= trial.until) trial.until = next_step(number);
    return trial.is_final ? follow_history(number) : base::ok();
}

/// Population based training: the trial goes on with the state of a better one.
Status Worker::copy_from(std::int64_t number, const search::Decision& decision) {
    const auto from = program_->lane_of(decision.from), to = program_->lane_of(number);
    if (!from || !to) return base::ok();  // another worker has it
    Held& trial = held_.at(number);
    History history = held_.at(decision.from).history;
    history[trial.epoch] = decision.configuration;
    trial.history = std::move(history);
    trial.recipe = recipe_of(study_, decision.configuration, trial.seed);
    ledger_.set_history(number, trial.history);
    MILLRACE_TRY(timed(times_.moving, [&] { return program_->runner->copy(*from, *to); }));
    return timed(times_.moving, [&] { return program_->runner->set(*to, trial.recipe); });
}

/// A final takes the configurations of the trial that it repeats, each at its step.
Status Worker::follow_history(std::int64_t number) {
    Held& trial = held_.at(number);
    const auto next = trial.history.find(trial.epoch);
    if (next == trial.history.end()) return base::ok();
    trial.recipe = recipe_of(study_, next->second, trial.seed);
    return timed(times_.moving, [&] { return program_->runner->set(*program_->lane_of(number), trial.recipe); });
}

/// The one look at the test part: finals at their end.
Status Worker::test_finals(std::vector<storage::Outcome>& outcomes) {
    const auto is_due = [&](const storage::Outcome& outcome) {
        return outcome.state == TrialState::complete && held_.at(outcome.number).is_final;
    };
    if (std::ranges::none_of(outcomes, is_due)) return base::ok();
    MILLRACE_LET(scores, timed(times_.epochs, [&] { return program_->runner->test(); }));
    for (storage::Outcome& outcome : outcomes) {
        if (!is_due(outcome)) continue;
        const auto lane = program_->lane_of(outcome.number);
        if (lane && static_cast<std::size_t>(*lane) < scores.size() && scores[static_cast<std::size_t>(*lane)])
            outcome.attributes[kTestAttribute] = metrics_json(scores[static_cast<std::size_t>(*lane)]->metrics);
    }
    return base::ok();
}

}  // namespace millrace::sweep
