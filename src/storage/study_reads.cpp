#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "storage/distribution.h"
#include "storage/study.h"

namespace millrace::storage {

/// Reads the tables of a study one after the other into its trials.
class TrialReader {
public:
    explicit TrialReader(Study& study) : study_(study) {}

    Result<std::vector<StoredTrial>> read() {
        MILLRACE_TRY(read_trials());
        MILLRACE_TRY(read_parameters());
        MILLRACE_TRY(read_values());
        MILLRACE_TRY(read_reports());
        MILLRACE_TRY(read_user_attributes());
        MILLRACE_TRY(read_system_attributes());
        return std::move(trials_);
    }

private:
    /// Calls `each(trial, row)`; the first column of `columns` is the trial's key.
    template <class Each>
    Status for_rows(const std::string& table, const std::string& columns, Each each) {
        MILLRACE_LET(rows,
                     study_.database_->run(fmt::format("SELECT x.trial_id, {} FROM {} x JOIN trials t ON t.trial_id = x.trial_id "
                                                       "WHERE t.study_id = $1",
                                                       columns, table),
                                           {study_.study_id_}));
        for (const Row& row : rows) {
            const auto* id = std::get_if<int64_t>(row.data());
            const auto found = id != nullptr ? positions_.find(*id) : positions_.end();
            if (found == positions_.end() || !each(found->second, row)) return study_.damaged(table);
        }
        return base::ok();
    }

    Status read_trials() {
        MILLRACE_LET(rows, study_.database_->run("SELECT trial_id, number, state, datetime_start, datetime_complete FROM trials "
                                                 "WHERE study_id = $1 ORDER BY number",
                                                 {study_.study_id_}));
        for (const Row& row : rows) {
            const auto* id = std::get_if<int64_t>(&row[0]);
            const auto* number = std::get_if<int64_t>(&row[1]);
            const auto* state = std::get_if<std::string>(&row[2]);
            if (id == nullptr || number == nullptr || state == nullptr || *number != static_cast<int64_t>(trials_.size()))
                return study_.damaged("trials.number");
            StoredTrial stored;
            stored.trial.number = *number;
            stored.is_waiting = *state == "WAITING";
            if (!set_state(stored.trial, *state)) return study_.damaged("trials.state");
            stored.has_ended = stored.trial.state != search::TrialState::running;
            if (const auto* text = std::get_if<std::string>(&row[3])) stored.started = time_of_text(*text);
            if (const auto* text = std::get_if<std::string>(&row[4])) stored.completed = time_of_text(*text);
            positions_[*id] = trials_.size();
            trials_.push_back(std::move(stored));
        }
        return base::ok();
    }

    static bool set_state(search::Trial& trial, const std::string& state) {
        using search::TrialState;
        static const std::map<std::string, TrialState> kStates = {{"RUNNING", TrialState::running},
                                                                  {"WAITING", TrialState::running},
                                                                  {"COMPLETE", TrialState::complete},
                                                                  {"PRUNED", TrialState::pruned},
                                                                  {"FAIL", TrialState::failed}};
        const auto found = kStates.find(state);
        if (found == kStates.end()) return false;
        trial.state = found->second;
        return true;
    }

    Status read_parameters() {
        std::vector<std::map<std::string, double>> numbers(trials_.size());
        MILLRACE_TRY(for_rows("trial_params", "x.param_name, x.param_value", [&](size_t at, const Row& row) {
            const auto* name = std::get_if<std::string>(&row[1]);
            const auto value = number_of(row[2]);
            if (name == nullptr || !value) return false;
            numbers[at][*name] = *value;
            return true;
        }));
        for (size_t at = 0; at < trials_.size(); ++at)
            for (const auto& parameter : study_.description_.space.parameters) {
                const auto value = value_of(parameter, numbers[at]);
                if (!value)
                    return Error{
                        fmt::format("trial {} of study '{}' has no value of the space for '{}': did another program add it?", at,
                                    study_.description_.name, parameter.name),
                        study_.database_->place()};
                trials_[at].trial.configuration.push_back(*value);
            }
        return base::ok();
    }

    Status read_values() {
        const size_t objectives = study_.description_.objectives.size();
        const double missing = std::numeric_limits<double>::quiet_NaN();
        MILLRACE_TRY(for_rows("trial_values", "x.objective, x.value, x.value_type", [&](size_t at, const Row& row) {
            const auto* objective = std::get_if<int64_t>(&row[1]);
            const auto value = typed_number(row[2], row[3]);
            if (objective == nullptr || *objective < 0 || static_cast<size_t>(*objective) >= objectives || !value) return false;
            auto& values = trials_[at].trial.values;
            values.resize(objectives, missing);
            values[static_cast<size_t>(*objective)] = study_.signed_value(static_cast<size_t>(*objective), *value);
            return true;
        }));
        for (const StoredTrial& stored : trials_) {
            bool is_whole = stored.trial.state != search::TrialState::complete || stored.trial.values.size() == objectives;
            for (const double value : stored.trial.values) is_whole = is_whole && !std::isnan(value);
            if (!is_whole) return study_.damaged(fmt::format("trial_values of trial {}", stored.trial.number));
        }
        return base::ok();
    }

    Status read_reports() {
        // Where there are several objectives, read_system_attributes replaces the one that Optuna keeps.
        const size_t objectives = study_.description_.objectives.size();
        return for_rows("trial_intermediate_values", "x.step, x.intermediate_value, x.intermediate_value_type",
                        [&](size_t at, const Row& row) {
                            const auto* step = std::get_if<int64_t>(&row[1]);
                            const auto value = typed_number(row[2], row[3]);
                            if (step == nullptr || !value) return false;
                            search::Objectives values(objectives, std::numeric_limits<double>::quiet_NaN());
                            values[0] = study_.signed_value(0, *value);
                            trials_[at].trial.reports[*step] = std::move(values);
                            return true;
                        });
    }

    Status read_user_attributes() {
        return for_rows("trial_user_attributes", "x.key, x.value_json", [&](size_t at, const Row& row) {
            const auto* key = std::get_if<std::string>(&row[1]);
            const auto* json = std::get_if<std::string>(&row[2]);
            if (key == nullptr || json == nullptr) return false;
            trials_[at].attributes[*key] = text_of_json(*json).value_or(*json);
            return true;
        });
    }

    Status read_system_attributes() {
        return for_rows("trial_system_attributes", "x.key, x.value_json", [&](size_t at, const Row& row) {
            const auto* key = std::get_if<std::string>(&row[1]);
            const auto* json = std::get_if<std::string>(&row[2]);
            return key != nullptr && json != nullptr && read_system_attribute(trials_[at], *key, *json);
        });
    }

    bool read_system_attribute(StoredTrial& stored, const std::string& key, const std::string& json) {
        const std::string report = "millrace:report:", rung = "completed_rung_";
        if (key == "millrace:paused") {
            using search::TrialState;
            const bool waits = stored.trial.state == TrialState::running || stored.trial.state == TrialState::pruned;
            if (waits) stored.trial.state = TrialState::paused;
        } else if (key == "millrace:worker") {
            stored.worker = text_of_json(json).value_or("");
        } else if (key == "constraints") {
            auto violations = numbers_of_json(json);
            if (!violations) return false;
            stored.trial.violations = std::move(*violations);
        } else if (key.starts_with(rung)) {
            const auto value = numbers_of_json("[" + json + "]");
            if (!value || value->size() != 1) return false;
            stored.rungs[std::strtoll(key.c_str() + rung.size(), nullptr, 10)] = study_.signed_value(0, value->front());
        } else if (key.starts_with(report)) {
            auto values = numbers_of_json(json);
            const auto found = stored.trial.reports.find(std::strtoll(key.c_str() + report.size(), nullptr, 10));
            if (!values || values->size() != study_.description_.objectives.size() || found == stored.trial.reports.end())
                return false;
            for (size_t i = 0; i < values->size(); ++i) (*values)[i] = study_.signed_value(i, (*values)[i]);
            found->second = std::move(*values);
        }
        return true;
    }

    static std::optional<double> number_of(const Value& value) {
        if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
        if (const auto* number = std::get_if<double>(&value)) return *number;
        return std::nullopt;
    }

    static std::optional<double> typed_number(const Value& value, const Value& type) {
        const auto* name = std::get_if<std::string>(&type);
        if (name == nullptr) return std::nullopt;
        if (*name == "INF_POS") return std::numeric_limits<double>::infinity();
        if (*name == "INF_NEG") return -std::numeric_limits<double>::infinity();
        if (*name == "NAN") return std::numeric_limits<double>::quiet_NaN();
        return *name == "FINITE" ? number_of(value) : std::nullopt;
    }

    Study& study_;
    std::map<int64_t, size_t> positions_;  ///< in trials_, by the key in the database
    std::vector<StoredTrial> trials_;
};

Result<std::vector<StoredTrial>> Study::read_trials() { return TrialReader(*this).read(); }

Result<std::vector<StoredTrial>> Study::trials() {
    MILLRACE_LET(transaction, Transaction::begin(*database_));
    MILLRACE_LET(all, read_trials());
    MILLRACE_TRY(transaction.commit());
    return all;
}

}  // namespace millrace::storage
