// The worker's trials: where they come from and what they are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "sweep/finals.h"
#include "sweep/worker.h"

namespace millrace::sweep {

using search::Configuration;
using search::TrialState;

namespace {

constexpr std::size_t kAhead = 2;  ///< lanes full of trials that may be queued

}  // namespace

std::size_t Worker::queued() const {
    std::size_t sum = 0;
    for (const auto& [structure, numbers] : queues_) sum += numbers.size();
    return sum;
}

std::size_t Worker::queued_here() const {
    if (program_ == nullptr) return queued();
    const auto found = queues_.find(program_->structure);
    return found == queues_.end() ? 0 : found->second.size();
}

/// Queues trials for the empty lanes. Those of other structures wait for their program.
Status Worker::queue_trials() {
    const auto lanes = static_cast<std::size_t>(programs_.lanes());
    const std::size_t running = program_ == nullptr ? 0 : program_->running();
    const std::size_t want = running == 0 ? lanes : program_->trials.size() - running;
    if (!is_out_of_time_ && ledger_.has_foreign() && queued_here() < want) MILLRACE_TRY(claim());
    std::vector<std::int64_t> promoted;
    while (!is_out_of_time_ && queued_here() < want && queued() < kAhead * lanes) {
        const bool may_start = !sampler_is_done_ && std::ssize(ledger_.searched()) < study_.trials;
        const auto next = scheduler_->next(ledger_.searched(), may_start);
        if (!next) break;
        if (next->promoted) {
            ledger_.promote(*next->promoted);
            hold(*next->promoted, true);
            promoted.push_back(*next->promoted);
            continue;
        }
        MILLRACE_TRY(resume(promoted));
        MILLRACE_LET(has_started, start_new(want - queued_here()));
        if (!has_started) break;
    }
    MILLRACE_TRY(resume(promoted));
    adopt();
    std::vector<std::int64_t> numbers;
    for (const auto& [number, trial] : held_) numbers.push_back(number);
    heartbeat_.hold(std::move(numbers));
    return base::ok();
}

/// Tells the database of trials that were promoted, and forgets those that another worker has.
Status Worker::resume(std::vector<std::int64_t>& promoted) {
    if (promoted.empty()) return base::ok();
    MILLRACE_LET(lost, ledger_.resume(promoted));
    for (const std::int64_t number : lost) {
        std::erase(queues_[held_.at(number).structure], number);
        held_.erase(number);
    }
    promoted.clear();
    return base::ok();
}

Status Worker::claim() {
    const bool is_busy = program_ != nullptr && program_->running() > 0;
    if (is_busy && last_claim_.count() != 0 && clock_.now() - last_claim_ < options_.heartbeat) return base::ok();
    last_claim_ = clock_.now();
    MILLRACE_LET(numbers, ledger_.claim(static_cast<std::size_t>(programs_.lanes()), options_.grace));
    // A worker that was silent itself, since the server was away, claims its own trials with the others'.
    for (const std::int64_t number : numbers)
        if (!held_.contains(number)) hold(number, false);
    return base::ok();
}

/// Takes up what is this worker's without its knowledge: the answer to the call that took it was lost with the connection.
void Worker::adopt() {
    for (const search::Trial& trial : ledger_.trials())
        if (ledger_.is_own(trial.number) && !held_.contains(trial.number) && (!is_out_of_time_ || ledger_.is_final(trial.number)))
            hold(trial.number, false);
}

/// The first trial of a configuration has the recipe's seed, and each replicate the next one.
std::uint64_t Worker::seed_of_next(const Configuration& configuration, std::span<const storage::NewTrial> before) const {
    const auto alike = std::ranges::count(before, configuration, &storage::NewTrial::configuration);
    return static_cast<std::uint64_t>(study_.recipe.integer("seed") + search::replicates(ledger_.searched(), configuration) +
                                      search::replicates(ledger_.finals(), configuration) + alike);
}

storage::NewTrial Worker::new_trial(const Configuration& configuration, std::span<const storage::NewTrial> before) const {
    const std::uint64_t seed = seed_of_next(configuration, before);
    storage::NewTrial trial{configuration, false, options_.attributes};
    trial.attributes[kSeedAttribute] = fmt::format("{}", seed);
    trial.attributes[kRecipeAttribute] = recipe_of(study_, configuration, seed).to_toml();
    return trial;
}

/// Gives all of them the structure of the program in use, for a lane-full of new trials, and then that of the first: a model of
/// the objective would otherwise choose trials long before they find a program.
void Worker::pin_structure(std::vector<Configuration>& configurations) const {
    const bool goes_on =
        program_ != nullptr && program_->running() > 0 && started_here_ < static_cast<std::size_t>(programs_.lanes());
    const Configuration& model = goes_on ? program_configuration_ : configurations.front();
    for (Configuration& configuration : configurations)
        for (const std::size_t at : structural_) configuration[at] = model[at];
}

Result<bool> Worker::start_new(std::size_t most) {
    auto count = std::min(static_cast<std::int64_t>(most), study_.trials - std::ssize(ledger_.searched()));
    if (study_.scheduler.name == "pbt") {
        const auto running =
            std::ranges::count_if(ledger_.searched(), [](const search::Trial& trial) { return trial.is_pending(); });
        count = std::min<std::int64_t>(count, study_.scheduler.population - running);
    }
    std::vector<Configuration> configurations = sampler_->ask(ledger_.searched(), std::ssize(ledger_.searched()), count);
    sampler_is_done_ = configurations.empty();
    if (configurations.empty()) return false;
    if (study_.sampler.name == "tpe" && !structural_.empty()) pin_structure(configurations);
    std::vector<storage::NewTrial> fresh;
    for (const Configuration& configuration : configurations) fresh.push_back(new_trial(configuration, fresh));
    MILLRACE_LET(numbers, ledger_.add(fresh));
    for (const std::int64_t number : numbers) hold(number, false);
    if (program_ != nullptr) started_here_ += numbers.size();
    return true;
}

/// Takes up a trial that the study says is this worker's.
void Worker::hold(std::int64_t number, bool is_urgent) {
    Held trial;
    const Configuration& configuration = ledger_.trial(number).configuration;
    const std::string seed = ledger_.attribute(number, kSeedAttribute);
    trial.seed =
        seed.empty() ? static_cast<std::uint64_t>(study_.recipe.integer("seed")) : std::strtoull(seed.c_str(), nullptr, 10);
    trial.is_final = ledger_.is_final(number);
    const std::string history = ledger_.attribute(number, kHistoryAttribute);
    trial.history = history_of_text(history, study_.space).value_or(History{{0, configuration}});
    trial.recipe = recipe_of(study_, trial.history.begin()->second, trial.seed);
    trial.identity = ledger_.attribute(number, kRecipeAttribute);
    if (trial.identity.empty()) trial.identity = trial.recipe.to_toml();
    trial.structure = factory_.structure(trial.recipe);
    auto& queue = queues_[trial.structure];
    if (is_urgent)
        queue.push_front(number);
    else
        queue.push_back(number);
    held_[number] = std::move(trial);
}

/// Where the search ended without a complete trial that may win, also because its time was up, the best of those that began
/// trains to its end. False: there is no need, or none.
Result<bool> Worker::finish_best() {
    if (study_.finalists == 0 || !chosen_finalists(ledger_, 1).empty()) return false;
    std::vector<search::Trial> unfinished;
    for (const search::Trial& trial : ledger_.searched()) {
        if (trial.state != TrialState::paused && !held_.contains(trial.number)) continue;
        unfinished.push_back(trial);
        unfinished.back().state = TrialState::paused;
    }
    const std::vector<std::size_t> order = search::best_first(unfinished);
    if (order.empty() || unfinished[order.front()].violation() > 0) return false;
    const std::int64_t number = unfinished[order.front()].number;
    std::vector<std::int64_t> promoted;
    if (!held_.contains(number)) {
        ledger_.promote(number);
        promoted.push_back(number);
    }
    hold(number, true);
    held_.at(number).goes_to_end = true;
    finished_ = number;
    MILLRACE_TRY(resume(promoted));
    return true;
}

/// Adds reruns for finalists that lack some. False: there is nothing to add.
Result<bool> Worker::add_finals() {
    std::vector<storage::NewTrial> fresh;
    for (const search::Finalist& finalist : chosen_finalists(ledger_, study_.finalists)) {
        for (auto known = search::replicates(ledger_.finals(), finalist.configuration); known < study_.replicates; ++known) {
            fresh.push_back(new_trial(finalist.configuration, fresh));
            fresh.back().attributes[kFinalAttribute] = "1";
            const std::string history = ledger_.attribute(finalist.numbers.front(), kHistoryAttribute);
            if (!history.empty()) fresh.back().attributes[kHistoryAttribute] = history;
        }
    }
    if (fresh.empty()) return false;
    is_training_finals_ = true;
    MILLRACE_LET(numbers, ledger_.add(fresh));
    for (const std::int64_t number : numbers) hold(number, false);
    return true;
}

}  // namespace millrace::sweep
