#include "storage/study.h"

#include <fmt/format.h>

#include <ctime>

#include "storage/distribution.h"

namespace millrace::storage {
namespace {

enum class Operation { create_study = 0, study_system_attribute = 3, create_trial = 4 };

std::string operation(Operation code, const std::string& fields) {
    return fmt::format("{{\"op_code\":{},\"worker_id\":\"millrace\",{}}}\n", static_cast<int>(code), fields);
}

/// Joins "name": value pairs to an object.
class ObjectText {
public:
    void add(const std::string& name, const std::string& json) {
        text_ += fmt::format("{}{}:{}", text_.empty() ? "" : ",", json_text(name), json);
    }
    [[nodiscard]] std::string text() const { return "{" + text_ + "}"; }

private:
    std::string text_;
};

std::string local_time(const std::optional<WallTime>& time) {
    if (!time) return "null";
    const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(*time));
    const auto micros = std::chrono::floor<std::chrono::microseconds>(time->time_since_epoch()).count() % 1'000'000;
    std::tm local{};
    ::localtime_r(&seconds, &local);
    return fmt::format("\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}\"", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                       local.tm_hour, local.tm_min, local.tm_sec, micros);
}

int state_number(const StoredTrial& stored) {
    using search::TrialState;
    if (stored.is_waiting) return 4;
    switch (stored.trial.state) {
        case TrialState::complete: return 1;
        case TrialState::pruned: return 2;
        case TrialState::failed: return 3;
        case TrialState::paused: return stored.has_ended ? 2 : 0;
        case TrialState::running: break;
    }
    return 0;
}

std::string trial_line(const StudyDescription& study, const StoredTrial& stored) {
    ObjectText distributions, parameters, user, system, reports;
    for (size_t i = 0; i < study.space.size(); ++i) {
        const auto& parameter = study.space.parameters[i];
        for (const auto& [name, value] : numbers_of(parameter, stored.trial.configuration[i])) {
            parameters.add(name, json_number(value));
            for (const auto& [known, json] : distributions_of(parameter))
                if (known == name) distributions.add(name, json_text(json));
        }
    }
    for (const auto& [key, text] : stored.attributes) user.add(key, json_text(text));
    if (!stored.trial.violations.empty()) system.add("constraints", json_numbers(stored.trial.violations));
    for (const auto& [rung, value] : stored.rungs)
        system.add(fmt::format("completed_rung_{}", rung), json_number(study.objectives[0].signed_value(value)));
    for (const auto& [step, values] : stored.trial.reports)
        reports.add(fmt::format("{}", step), json_number(study.objectives[0].signed_value(values[0])));
    std::vector<double> values;
    for (size_t i = 0; i < stored.trial.values.size(); ++i)
        values.push_back(study.objectives[i].signed_value(stored.trial.values[i]));
    const bool has_one = values.size() == 1;
    return operation(
        Operation::create_trial,
        fmt::format("\"study_id\":0,\"state\":{},\"value\":{},\"values\":{},\"datetime_start\":{}{},"
                    "\"distributions\":{},\"params\":{},\"user_attrs\":{},\"system_attrs\":{},\"intermediate_values\":{}",
                    state_number(stored), has_one ? json_number(values[0]) : "null",
                    values.size() > 1 ? json_numbers(values) : "null", local_time(stored.started),
                    stored.completed ? ",\"datetime_complete\":" + local_time(stored.completed) : "", distributions.text(),
                    parameters.text(), user.text(), system.text(), reports.text()));
}

}  // namespace

Status write_journal(const io::Path& path, const StudyDescription& study, std::span<const StoredTrial> trials) {
    std::string directions, metrics;
    for (const Objective& objective : study.objectives) {
        directions += fmt::format("{}{}", directions.empty() ? "" : ",", objective.maximize ? 2 : 1);
        metrics += (metrics.empty() ? "" : ",") + json_text(objective.metric);
    }
    std::string text = operation(Operation::create_study,
                                 fmt::format("\"study_name\":{},\"directions\":[{}]", json_text(study.name), directions)) +
                       operation(Operation::study_system_attribute,
                                 fmt::format("\"study_id\":0,\"system_attr\":{{\"study:metric_names\":[{}]}}", metrics));
    for (const StoredTrial& stored : trials) text += trial_line(study, stored);
    MILLRACE_TRY(io::write_atomically(path, text));
    return base::ok();
}

}  // namespace millrace::storage
