#include "sweep/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "storage/database.h"
#include "sweep/study_file.h"

namespace millrace::sweep {

using search::TrialState;
using storage::StoredTrial;

Result<Ledger> Ledger::open(const std::string& place, storage::StudyDescription description, std::string worker,
                            const base::Clock& clock) {
    MILLRACE_LET(database, storage::open_database(place));
    MILLRACE_LET(study, storage::Study::open(std::move(database), std::move(description), worker, clock));
    Ledger ledger(std::move(study), std::move(worker), clock);
    MILLRACE_TRY(ledger.refresh());
    return ledger;
}

std::string Ledger::attribute(std::int64_t number, const std::string& name) const {
    const storage::Attributes& all = note(number).attributes;
    const auto found = all.find(name);
    return found == all.end() ? std::string{} : found->second;
}

bool Ledger::has_foreign() const {
    return std::ranges::any_of(notes_, [](const Note& note) { return note.is_foreign; });
}

bool Ledger::is_own(std::int64_t number) const { return trial(number).state == TrialState::running && !note(number).is_foreign; }

/// A server that restarts cuts transactions off.
template <class Call>
auto Ledger::insist(Call call) {
    constexpr int kMostTries = 10;  // a server that this very call brings down is not asked for ever
    auto result = call();
    for (int tries = 1; tries < kMostTries && !result.ok() && study_.was_cut_off(); ++tries) {
        MILLRACE_LOG(warn, "{}; trying again", result.error().text());
        result = call();
    }
    return result;
}

Result<std::vector<StoredTrial>> Ledger::stored() {
    MILLRACE_LET(all, insist([&] { return study_.trials(); }));
    for (StoredTrial& stored : all) {
        if (const auto text = stored.attributes.find(kHistoryAttribute); text != stored.attributes.end()) {
            const auto history = history_of_text(text->second, description().space);
            if (!history)
                return base::Error{fmt::format("study '{}': the attribute \"{}\" of trial {} is no history of the study's space",
                                               description().name, kHistoryAttribute, stored.trial.number)};
            stored.trial.configuration = history->rbegin()->second;
        }
        const auto changed = changed_.find(stored.trial.number);
        if (changed == changed_.end()) continue;
        if (stored.trial.state == TrialState::running && is_mine(stored))
            stored.trial.configuration = changed->second;
        else
            changed_.erase(changed);
    }
    return all;
}

Status Ledger::refresh() {
    const auto before = clock_->now();
    MILLRACE_LET(all, stored());
    for (StoredTrial& stored : all) {
        // The database learns of violations when a trial leaves its lane.
        const auto number = static_cast<std::size_t>(stored.trial.number);
        if (stored.trial.violations.empty() && number < notes_.size()) stored.trial.violations = trial(notes_[number]).violations;
    }
    searched_.clear();
    finals_.clear();
    notes_.clear();
    for (StoredTrial& stored : all) {
        const bool is_foreign = stored.trial.state == TrialState::running && !is_mine(stored);
        insert(std::move(stored.trial), std::move(stored.attributes), is_foreign);
    }
    last_read_ = clock_->now();
    read_cost_ = last_read_ - before;
    return base::ok();
}

void Ledger::insert(search::Trial trial, storage::Attributes attributes, bool is_foreign) {
    const bool is_final = attributes.contains(kFinalAttribute);
    std::vector<search::Trial>& among = is_final ? finals_ : searched_;
    notes_.push_back({std::move(attributes), is_final, is_foreign, among.size()});
    among.push_back(std::move(trial));
}

Status Ledger::refresh_if_due() {
    constexpr int kShare = 400;
    if (clock_->now() - last_read_ < kShare * read_cost_) return base::ok();
    return refresh();
}

Result<std::vector<std::int64_t>> Ledger::add(std::span<const storage::NewTrial> trials) {
    MILLRACE_LET(numbers, insist([&] { return study_.add(trials, static_cast<std::int64_t>(notes_.size())); }));
    if (numbers.empty()) {
        MILLRACE_TRY(refresh());
        return numbers;
    }
    for (std::size_t i = 0; i < numbers.size(); ++i)
        insert({numbers[i], trials[i].configuration, TrialState::running, {}, {}, {}}, trials[i].attributes, false);
    return numbers;
}

Result<std::vector<std::int64_t>> Ledger::claim(std::size_t count, std::chrono::milliseconds grace) {
    MILLRACE_LET(numbers, insist([&] { return study_.claim(count, grace); }));
    if (!numbers.empty()) MILLRACE_TRY(refresh());
    return numbers;
}

void Ledger::promote(std::int64_t number) {
    at(number).state = TrialState::running;
    at(number).values.clear();
}

Result<std::vector<std::int64_t>> Ledger::resume(std::span<const std::int64_t> numbers) {
    MILLRACE_LET(resumed, insist([&] { return study_.resume(numbers); }));
    std::vector<std::int64_t> lost;
    for (const std::int64_t number : numbers)
        if (std::ranges::find(resumed, number) == resumed.end()) lost.push_back(number);
    if (!lost.empty()) MILLRACE_TRY(refresh());
    return lost;
}

Status Ledger::prune_paused() {
    return insist([&] { return study_.prune_paused(); });
}

Result<std::vector<std::int64_t>> Ledger::report(std::span<const storage::Report> reports) {
    MILLRACE_LET(lost, insist([&] { return study_.report(reports); }));
    for (const storage::Report& report : reports) at(report.number).reports[report.step] = report.values;
    if (!lost.empty()) MILLRACE_TRY(refresh());
    return lost;
}

Result<std::vector<std::int64_t>> Ledger::finish(std::span<const storage::Outcome> outcomes) {
    MILLRACE_LET(lost, insist([&] { return study_.finish(outcomes); }));
    for (const storage::Outcome& outcome : outcomes) {
        search::Trial& trial = at(outcome.number);
        trial.state = outcome.state;
        trial.values = outcome.values;
        if (outcome.state == TrialState::complete) search::finish(trial, outcome.values);
        if (!outcome.violations.empty()) trial.violations = outcome.violations;
        for (const auto& [name, text] : outcome.attributes)
            notes_[static_cast<std::size_t>(outcome.number)].attributes[name] = text;
    }
    if (!lost.empty()) MILLRACE_TRY(refresh());
    return lost;
}

Status Ledger::give_back(std::span<const std::int64_t> numbers) {
    MILLRACE_TRY(insist([&] { return study_.give_back(numbers); }));
    return refresh();
}

void Ledger::set_violations(std::int64_t number, std::vector<double> violations) {
    at(number).violations = std::move(violations);
}

void Ledger::set_history(std::int64_t number, const History& history) {
    changed_[number] = at(number).configuration = history.rbegin()->second;
}

Heartbeat::Heartbeat(std::function<base::Result<storage::Study>()> open, std::chrono::milliseconds interval)
    : open_(std::move(open)), interval_(interval), thread_([this](const std::stop_token& stop) { beat(stop); }) {}

void Heartbeat::hold(std::vector<std::int64_t> numbers) {
    const std::lock_guard lock(mutex_);
    numbers_ = std::move(numbers);
}

void Heartbeat::beat(const std::stop_token& stop) {
    std::optional<storage::Study> study;
    std::unique_lock lock(mutex_);
    for (;;) {
        ended_.wait_for(lock, stop, interval_, [] { return false; });
        if (stop.stop_requested()) return;
        const std::vector<std::int64_t> numbers = numbers_;
        if (numbers.empty()) continue;
        lock.unlock();
        if (!study) {
            auto opened = open_();
            if (opened.ok()) study.emplace(std::move(opened).value());
        }
        if (study) (void)study->heartbeat(numbers);
        lock.lock();
    }
}

}  // namespace millrace::sweep
