#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "storage/distribution.h"
#include "storage/study.h"

namespace millrace::storage {
namespace {

constexpr const char* kWorkerKey = "millrace:worker";
constexpr const char* kPausedKey = "millrace:paused";

const char* value_type(double value) {
    if (std::isnan(value)) return "NAN";
    if (std::isinf(value)) return value > 0 ? "INF_POS" : "INF_NEG";
    return "FINITE";
}

/// SQL has no numbers that are not finite; their kind stands in value_type.
Value finite_or_null(double value) { return std::isfinite(value) ? Value{value} : Value{}; }

int64_t number_of(int64_t number) { return number; }
int64_t number_of(const auto& entry) { return entry.number; }

constexpr const char* kReplaceAttribute = "ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json";

}  // namespace

Status Study::set_attribute(const char* kind, int64_t id, const std::string& key, const std::string& json) {
    return upsert(fmt::format("trial_{}_attributes (trial_id, key, value_json)", kind), kReplaceAttribute, {{id, key, json}});
}

Status Study::set_attributes(int64_t id, const Attributes& attributes) {
    for (const auto& [key, text] : attributes) MILLRACE_TRY(set_attribute("user", id, key, json_text(text)));
    return base::ok();
}

Status Study::set_heartbeats(const std::set<int64_t>& ids) {
    std::vector<Row> rows;
    for (const int64_t id : ids) rows.push_back({id, now()});
    return upsert("trial_heartbeats (trial_id, heartbeat)", "ON CONFLICT (trial_id) DO UPDATE SET heartbeat = excluded.heartbeat",
                  rows);
}

Status Study::take(int64_t id, bool was_waiting) {
    if (was_waiting)
        MILLRACE_TRY(database_->run("UPDATE trials SET state = 'RUNNING', datetime_start = $1 WHERE trial_id = $2", {now(), id}));
    MILLRACE_TRY(set_attribute("system", id, kWorkerKey, json_text(worker_)));
    return set_heartbeats({id});
}

Status Study::release(int64_t id) {
    MILLRACE_TRY(database_->run("DELETE FROM trial_heartbeats WHERE trial_id = $1", {id}));
    return base::ok();
}

Result<std::map<int64_t, int64_t>> Study::ids_in(const std::vector<Row>& rows) const {
    std::map<int64_t, int64_t> ids;
    for (const Row& row : rows) {
        const auto* number = std::get_if<int64_t>(&row[0]);
        const auto* id = std::get_if<int64_t>(&row[1]);
        if (number == nullptr || id == nullptr) return damaged("trials.number");
        ids[*number] = *id;
    }
    return ids;
}

Result<int64_t> Study::id_of(int64_t number) {
    if (!ids_.contains(number)) {
        MILLRACE_LET(rows, database_->run("SELECT number, trial_id FROM trials WHERE study_id = $1", {study_id_}));
        MILLRACE_SET(ids_, ids_in(rows));
    }
    const auto found = ids_.find(number);
    if (found == ids_.end())
        return Error{fmt::format("study '{}' has no trial {}", description_.name, number), database_->place()};
    return found->second;
}

Result<std::map<int64_t, int64_t>> Study::owned() {
    MILLRACE_LET(rows, database_->run("SELECT t.number, t.trial_id FROM trials t "
                                      "JOIN trial_heartbeats h ON h.trial_id = t.trial_id "
                                      "JOIN trial_system_attributes a ON a.trial_id = t.trial_id "
                                      "WHERE t.study_id = $1 AND t.state = 'RUNNING' AND a.key = $2 AND a.value_json = $3",
                                      {study_id_, kWorkerKey, json_text(worker_)}));
    return ids_in(rows);
}

Status Study::upsert(const std::string& insert, const std::string& update, const std::vector<Row>& rows) {
    constexpr size_t kMostRows = 100;  // of a statement: a round trip to a server takes longer than a row
    for (size_t first = 0; first < rows.size(); first += kMostRows) {
        std::string places;
        std::vector<Value> values;
        for (size_t i = first; i < std::min(rows.size(), first + kMostRows); ++i) {
            places += places.empty() ? "(" : ", (";
            for (const Value& value : rows[i]) {
                values.push_back(value);
                places += fmt::format("{}${}", &value == rows[i].data() ? "" : ", ", values.size());
            }
            places += ")";
        }
        MILLRACE_TRY(database_->run(fmt::format("INSERT INTO {} VALUES {} {}", insert, places, update), values));
    }
    return base::ok();
}

template <class Entry, class Write>
Result<std::vector<int64_t>> Study::for_owned(std::span<const Entry> entries, Write write) {
    std::vector<int64_t> lost;
    MILLRACE_LET(ids, owned());
    for (const Entry& entry : entries) {
        const auto found = ids.find(number_of(entry));
        if (found != ids.end()) {
            MILLRACE_TRY(write(found->second, entry));
            continue;
        }
        MILLRACE_TRY(id_of(number_of(entry)));
        lost.push_back(number_of(entry));
    }
    return lost;
}

Result<std::vector<int64_t>> Study::add(std::span<const NewTrial> trials, std::optional<int64_t> expected) {
    for (const NewTrial& trial : trials)
        if (!description_.space.holds(trial.configuration))
            return Error{fmt::format("study '{}': a new trial is none of its space", description_.name), database_->place()};
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(rows, database_->run("SELECT COUNT(*) FROM trials WHERE study_id = $1", {study_id_}));
    const auto first = std::get<int64_t>(rows.front().front());
    std::vector<int64_t> numbers;
    if (expected && *expected != first) return numbers;
    for (const NewTrial& trial : trials) {
        numbers.push_back(first + static_cast<int64_t>(numbers.size()));
        MILLRACE_TRY(insert(numbers.back(), trial));
    }
    MILLRACE_TRY(transaction.commit());
    return numbers;
}

Status Study::insert(int64_t number, const NewTrial& trial) {
    MILLRACE_LET(inserted, database_->run("INSERT INTO trials (number, study_id, state, datetime_start) VALUES ($1, $2, $3, $4) "
                                          "RETURNING trial_id",
                                          {number, study_id_, trial.is_waiting ? "WAITING" : "RUNNING",
                                           trial.is_waiting ? Value{} : Value{now()}}));
    const auto id = std::get<int64_t>(inserted.front().front());
    std::vector<Row> rows;
    for (size_t i = 0; i < trial.configuration.size(); ++i) {
        const auto& parameter = description_.space.parameters[i];
        const auto distributions = distributions_of(parameter);
        for (const auto& [name, value] : numbers_of(parameter, trial.configuration[i]))
            for (const auto& [known, json] : distributions)
                if (known == name) rows.push_back({id, name, value, json});
    }
    MILLRACE_TRY(upsert("trial_params (trial_id, param_name, param_value, distribution_json)", "", rows));
    MILLRACE_TRY(set_attributes(id, trial.attributes));
    return trial.is_waiting ? base::ok() : take(id, false);
}

Result<std::vector<int64_t>> Study::claim(size_t count, std::chrono::milliseconds grace) {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(rows,
                 database_->run("SELECT t.trial_id, t.number, t.state FROM trials t "
                                "LEFT JOIN trial_heartbeats h ON h.trial_id = t.trial_id "
                                "WHERE t.study_id = $1 AND (t.state = 'WAITING' OR (t.state = 'RUNNING' AND h.heartbeat < $2)) "
                                "ORDER BY t.number LIMIT $3",
                                {study_id_, time_text(clock_->wall() + ahead_ - grace), static_cast<int64_t>(count)}));
    std::vector<int64_t> claimed;
    for (const Row& row : rows) {
        const auto* id = std::get_if<int64_t>(&row[0]);
        const auto* number = std::get_if<int64_t>(&row[1]);
        if (id == nullptr || number == nullptr) return damaged("trials.number");
        MILLRACE_TRY(take(*id, row[2] == Value{"WAITING"}));
        claimed.push_back(*number);
    }
    MILLRACE_TRY(transaction.commit());
    return claimed;
}

Result<std::vector<int64_t>> Study::resume(std::span<const int64_t> numbers) {
    std::vector<int64_t> resumed;
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    for (const int64_t number : numbers) {
        MILLRACE_LET(id, id_of(number));
        MILLRACE_LET(rows,
                     database_->run("DELETE FROM trial_system_attributes WHERE trial_id = $1 AND key = $2 RETURNING trial_id",
                                    {id, kPausedKey}));
        if (rows.empty()) continue;
        MILLRACE_LET(ended, database_->run("UPDATE trials SET state = 'RUNNING', datetime_complete = NULL "
                                           "WHERE trial_id = $1 AND state = 'PRUNED' RETURNING trial_id",
                                           {id}));
        if (!ended.empty()) MILLRACE_TRY(database_->run("DELETE FROM trial_values WHERE trial_id = $1", {id}));
        MILLRACE_TRY(take(id, false));
        resumed.push_back(number);
    }
    MILLRACE_TRY(transaction.commit());
    return resumed;
}

Status Study::prune_paused() {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(all, read_trials());
    for (const StoredTrial& stored : all) {
        if (stored.trial.state != search::TrialState::paused || stored.has_ended) continue;
        MILLRACE_LET(id, id_of(stored.trial.number));
        MILLRACE_TRY(end_trial(id, "PRUNED", search::values_at(stored.trial, stored.trial.last_step(), std::nullopt)));
    }
    return transaction.commit();
}

Result<std::vector<int64_t>> Study::heartbeat(std::span<const int64_t> numbers) {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    std::set<int64_t> alive;
    MILLRACE_LET(lost, for_owned(numbers, [&](int64_t id, int64_t) {
                     alive.insert(id);
                     return base::ok();
                 }));
    MILLRACE_TRY(set_heartbeats(alive));
    MILLRACE_TRY(transaction.commit());
    return lost;
}

Result<std::vector<int64_t>> Study::give_back(std::span<const int64_t> numbers) {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(lost, for_owned(numbers, [&](int64_t id, int64_t) { return give_back_one(id); }));
    MILLRACE_TRY(transaction.commit());
    return lost;
}

Status Study::give_back_one(int64_t id) {
    MILLRACE_TRY(database_->run("UPDATE trials SET state = 'WAITING', datetime_start = NULL WHERE trial_id = $1", {id}));
    return release(id);
}

Result<std::vector<int64_t>> Study::report(std::span<const Report> reports) {
    for (const Report& report : reports)
        if (report.values.size() != description_.objectives.size())
            return Error{fmt::format("trial {} reports {} values, the study has {} objectives", report.number,
                                     report.values.size(), description_.objectives.size()),
                         database_->place()};
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    // By key: a statement must not write a row twice.
    std::map<std::pair<int64_t, int64_t>, double> steps;
    std::map<std::pair<int64_t, std::string>, std::string> attributes;
    std::set<int64_t> alive;
    MILLRACE_LET(lost, for_owned(reports, [&](int64_t id, const Report& report) {
                     search::Objectives values = report.values;
                     for (size_t i = 0; i < values.size(); ++i) values[i] = signed_value(i, values[i]);
                     steps[{id, report.step}] = values[0];
                     if (values.size() > 1)
                         attributes[{id, fmt::format("millrace:report:{}", report.step)}] = json_numbers(values);
                     if (report.rung) attributes[{id, fmt::format("completed_rung_{}", *report.rung)}] = json_number(values[0]);
                     alive.insert(id);
                     return base::ok();
                 }));
    std::vector<Row> rows;
    for (const auto& [key, value] : steps) rows.push_back({key.first, key.second, finite_or_null(value), value_type(value)});
    MILLRACE_TRY(upsert("trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)",
                        "ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value = excluded.intermediate_value, "
                        "intermediate_value_type = excluded.intermediate_value_type",
                        rows));
    rows.clear();
    for (const auto& [key, json] : attributes) rows.push_back({key.first, key.second, json});
    MILLRACE_TRY(upsert("trial_system_attributes (trial_id, key, value_json)", kReplaceAttribute, rows));
    MILLRACE_TRY(set_heartbeats(alive));
    MILLRACE_TRY(transaction.commit());
    return lost;
}

Result<std::vector<int64_t>> Study::finish(std::span<const Outcome> outcomes) {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(lost, for_owned(outcomes, [&](int64_t id, const Outcome& outcome) { return write_outcome(id, outcome); }));
    MILLRACE_TRY(transaction.commit());
    return lost;
}

Status Study::write_outcome(int64_t id, const Outcome& outcome) {
    using search::TrialState;
    const auto refuse = [&](const char* what) {
        return Error{fmt::format("trial {} cannot end: {}", outcome.number, what), database_->place()};
    };
    if (outcome.state == TrialState::running) return refuse("a running trial has not ended");
    const bool is_complete = outcome.state == TrialState::complete && search::all_finite(outcome.values);
    const bool needs_values = outcome.state == TrialState::complete || !outcome.values.empty();
    if (needs_values && outcome.values.size() != description_.objectives.size())
        return refuse("it needs one value for each objective of the study");
    if (outcome.state == TrialState::pruned && needs_values && !search::all_finite(outcome.values))
        return refuse("the values of a pruned trial are finite");
    MILLRACE_TRY(set_attributes(id, outcome.attributes));
    if (!outcome.violations.empty()) MILLRACE_TRY(set_attribute("system", id, "constraints", json_numbers(outcome.violations)));
    MILLRACE_TRY(release(id));
    if (outcome.state == TrialState::paused) return set_attribute("system", id, kPausedKey, "true");
    if (is_complete) return end_trial(id, "COMPLETE", outcome.values);
    const bool is_pruned = outcome.state == TrialState::pruned;
    return end_trial(id, is_pruned ? "PRUNED" : "FAIL", is_pruned ? outcome.values : search::Objectives{});
}

/// `values` are finite, one for each objective, or none.
Status Study::end_trial(int64_t id, const char* state, const search::Objectives& values) {
    for (size_t i = 0; i < values.size(); ++i)
        MILLRACE_TRY(
            database_->run("INSERT INTO trial_values (trial_id, objective, value, value_type) VALUES ($1, $2, $3, 'FINITE')",
                           {id, static_cast<int64_t>(i), signed_value(i, values[i])}));
    MILLRACE_TRY(database_->run("UPDATE trials SET state = $1, datetime_complete = $2 WHERE trial_id = $3", {state, now(), id}));
    return base::ok();
}

}  // namespace millrace::storage
