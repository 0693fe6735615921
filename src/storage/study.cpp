#include "storage/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "storage/distribution.h"

namespace millrace::storage {
namespace {

constexpr const char* kSpaceKey = "millrace:space";
constexpr const char* kMetricsKey = "study:metric_names";

/// Name to distribution, as kept in kSpaceKey.
using Distributions = std::map<std::string, std::string>;

Distributions distributions_of_space(const search::Space& space) {
    Distributions out;
    for (const auto& parameter : space.parameters)
        for (auto& [name, json] : distributions_of(parameter)) out[name] = json;
    return out;
}

std::string json_object(const Distributions& distributions) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [name, json] : distributions) object[name] = json;
    return base::ascii_json_text(object);
}

/// The first difference of the study's space from ours; empty when there is none.
std::string space_difference(const Distributions& theirs, const Distributions& ours) {
    for (const auto& [name, json] : theirs) {
        const auto found = ours.find(name);
        if (found == ours.end()) return fmt::format("the study searches '{}', this space does not", name);
        if (found->second != json) return fmt::format("'{}' is {} in the study and {} here", name, json, found->second);
    }
    for (const auto& [name, json] : ours)
        if (!theirs.contains(name)) return fmt::format("this space searches '{}', the study does not", name);
    return {};
}

std::string objectives_text(const std::vector<Objective>& objectives) {
    std::string out;
    for (const auto& objective : objectives)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", objective.maximize ? "maximize" : "minimize", objective.metric);
    return out;
}

}  // namespace

Result<Study> Study::open(std::unique_ptr<Database> database, StudyDescription description, std::string worker,
                          const base::Clock& clock) {
    if (description.name.empty() || description.name.size() > 512)
        return Error{"a study's name has 1 to 512 characters", database->place()};
    if (description.objectives.empty()) return Error{"a study has at least one objective", database->place()};
    Study study{std::move(database), std::move(description), std::move(worker), clock};
    MILLRACE_LET(transaction, Transaction::begin(*study.database_));
    MILLRACE_LET(rows, study.database_->run("SELECT study_id FROM studies WHERE study_name = $1", {study.description_.name}));
    if (rows.empty()) {
        MILLRACE_TRY(study.create());
    } else {
        const auto* id = std::get_if<int64_t>(rows.front().data());
        if (id == nullptr) return study.damaged("studies.study_id");
        study.study_id_ = *id;
        MILLRACE_TRY(study.compare());
    }
    MILLRACE_TRY(transaction.commit());
    MILLRACE_LET(time, study.database_->time());
    if (const auto theirs = time_of_text(time)) study.ahead_ = *theirs - clock.wall();
    return study;
}

Status Study::create() {
    MILLRACE_LET(rows, database_->run("INSERT INTO studies (study_name) VALUES ($1) RETURNING study_id", {description_.name}));
    study_id_ = std::get<int64_t>(rows.front().front());
    nlohmann::json metrics = nlohmann::json::array();
    for (size_t i = 0; i < description_.objectives.size(); ++i) {
        const auto& objective = description_.objectives[i];
        metrics.push_back(objective.metric);
        MILLRACE_TRY(database_->run("INSERT INTO study_directions (direction, study_id, objective) VALUES ($1, $2, $3)",
                                    {objective.maximize ? "MAXIMIZE" : "MINIMIZE", study_id_, static_cast<int64_t>(i)}));
    }
    const std::pair<std::string, std::string> attributes[] = {
        {kMetricsKey, base::ascii_json_text(metrics)}, {kSpaceKey, json_object(distributions_of_space(description_.space))}};
    for (const auto& [key, json] : attributes)
        MILLRACE_TRY(database_->run("INSERT INTO study_system_attributes (study_id, key, value_json) VALUES ($1, $2, $3)",
                                    {study_id_, key, json}));
    return base::ok();
}

Status Study::compare() {
    MILLRACE_LET(attributes,
                 database_->run("SELECT key, value_json FROM study_system_attributes WHERE study_id = $1", {study_id_}));
    std::map<std::string, nlohmann::json> known;
    for (const Row& row : attributes) {
        const auto* key = std::get_if<std::string>(&row[0]);
        const auto* json = std::get_if<std::string>(&row[1]);
        if (key == nullptr || json == nullptr) return damaged("study_system_attributes");
        if (*key == kSpaceKey || *key == kMetricsKey) known[*key] = base::json_from(*json);
    }
    if (!known.contains(kSpaceKey) || !known.contains(kMetricsKey))
        return Error{fmt::format("study '{}' was made by another program, which did not say what it searches; take another name",
                                 description_.name),
                     database_->place()};
    const auto& metrics = known[kMetricsKey];
    MILLRACE_LET(directions,
                 database_->run("SELECT direction FROM study_directions WHERE study_id = $1 ORDER BY objective", {study_id_}));
    if (!metrics.is_array() || metrics.size() != directions.size()) return damaged(kMetricsKey);
    std::vector<Objective> theirs;
    for (size_t i = 0; i < directions.size(); ++i) {
        const auto* direction = std::get_if<std::string>(directions[i].data());
        if (direction == nullptr || !metrics[i].is_string()) return damaged("study_directions");
        theirs.push_back({metrics[i].get<std::string>(), *direction == "MAXIMIZE"});
    }
    if (objectives_text(theirs) != objectives_text(description_.objectives))
        return Error{fmt::format("study '{}' has other objectives: {} in the study, {} here; take another name for this one",
                                 description_.name, objectives_text(theirs), objectives_text(description_.objectives)),
                     database_->place()};
    Distributions distributions;
    const auto& space = known[kSpaceKey];
    if (!space.is_object()) return damaged(kSpaceKey);
    for (const auto& [name, json] : space.items()) {
        if (!json.is_string()) return damaged(kSpaceKey);
        distributions[name] = json.get<std::string>();
    }
    const std::string difference = space_difference(distributions, distributions_of_space(description_.space));
    if (!difference.empty())
        return Error{
            fmt::format("study '{}' has another space: {}; take another name for this one", description_.name, difference),
            database_->place()};
    return base::ok();
}

Error Study::damaged(const std::string& what) const {
    return Error{fmt::format("study '{}' is damaged: {} is not as Optuna's schema has it", description_.name, what),
                 database_->place()};
}

std::string Study::now() const { return time_text(clock_->wall() + ahead_); }

std::string time_text(WallTime time) {
    using std::chrono::floor;
    const auto day = floor<std::chrono::days>(time);
    const std::chrono::year_month_day date{day};
    const auto micros = floor<std::chrono::microseconds>(time - day).count();
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}", static_cast<int>(date.year()),
                       static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), micros / 3'600'000'000,
                       micros / 60'000'000 % 60, micros / 1'000'000 % 60, micros % 1'000'000);
}

std::optional<WallTime> time_of_text(const std::string& text) {
    int year = 0;
    unsigned month = 0, day = 0, hour = 0, minute = 0;
    double second = 0;
    if (std::sscanf(text.c_str(), "%4d-%2u-%2u %2u:%2u:%9lf", &year, &month, &day, &hour, &minute, &second) != 6)
        return std::nullopt;
    const std::chrono::year_month_day date{std::chrono::year{year}, std::chrono::month{month}, std::chrono::day{day}};
    if (!date.ok() || hour > 23 || minute > 59 || !(second >= 0 && second < 61)) return std::nullopt;
    return std::chrono::sys_days{date} + std::chrono::hours{hour} + std::chrono::minutes{minute} +
           std::chrono::microseconds{std::llround(second * 1e6)};
}

}  // namespace millrace::storage
