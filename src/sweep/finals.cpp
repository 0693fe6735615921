#include "sweep/finals.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace millrace::sweep {

Summary summary_of(const std::vector<double>& values) {
    Summary out;
    out.count = values.size();
    if (values.empty()) return out;
    for (const double value : values) out.mean += value / static_cast<double>(values.size());
    double squares = 0;
    for (const double value : values) squares += (value - out.mean) * (value - out.mean);
    if (values.size() > 1) out.spread = std::sqrt(squares / static_cast<double>(values.size() - 1));
    return out;
}

std::string summary_text(const Summary& summary) {
    return summary.count > 1 ? fmt::format("{:.5g} +- {:.2g}", summary.mean, summary.spread)
                             : fmt::format("{:.5g}", summary.mean);
}

std::vector<search::Finalist> chosen_finalists(const Ledger& ledger, std::int64_t count) {
    return search::finalists(ledger.searched(), static_cast<std::size_t>(count));
}

namespace {

/// Adds what the test part said of a rerun.
void add_test(const Ledger& ledger, std::int64_t number, std::map<std::string, std::vector<double>>& found) {
    const auto json = base::json_from(ledger.attribute(number, kTestAttribute));
    if (!json.is_object()) return;
    for (const auto& [name, value] : json.items())
        if (value.is_number() && name.starts_with("test_")) found[name].push_back(value.get<double>());
}

FinalistResult result_of(const Ledger& ledger, const StudyFile& study, const search::Finalist& finalist) {
    FinalistResult out{finalist.configuration, finalist.numbers, {}, 0, {}, {}, {}};
    out.history = ledger.attribute(finalist.numbers.front(), kHistoryAttribute);
    std::map<std::string, std::vector<double>> tests;
    for (const search::Trial& trial : ledger.finals()) {
        if (trial.configuration != finalist.configuration) continue;
        out.failed += trial.state == search::TrialState::failed ? 1 : 0;
        if (trial.state != search::TrialState::complete) continue;
        out.reruns.push_back(trial.number);
        add_test(ledger, trial.number, tests);
    }
    const std::vector<std::int64_t>& judged = out.reruns.empty() ? out.trials : out.reruns;
    for (std::size_t i = 0; i < study.objectives.size(); ++i) {
        std::vector<double> values;
        for (const std::int64_t number : judged)
            values.push_back(study.objectives[i].signed_value(ledger.trial(number).values[i]));
        out.objectives.push_back(summary_of(values));
    }
    for (const auto& [name, values] : tests) out.test[name] = summary_of(values);
    return out;
}

}  // namespace

std::vector<FinalistResult> finalist_results(const Ledger& ledger, const StudyFile& study) {
    std::vector<FinalistResult> sound, failed;
    std::vector<search::Objectives> means;
    for (const search::Finalist& finalist : chosen_finalists(ledger, study.finalists)) {
        FinalistResult result = result_of(ledger, study, finalist);
        if (result.failed > 0) {
            failed.push_back(std::move(result));
            continue;
        }
        search::Objectives& mean = means.emplace_back();
        for (std::size_t i = 0; i < study.objectives.size(); ++i)
            mean.push_back(study.objectives[i].signed_value(result.objectives[i].mean));
        sound.push_back(std::move(result));
    }
    std::vector<FinalistResult> out;
    for (const std::size_t i : search::pareto_order(means)) out.push_back(std::move(sound[i]));
    for (FinalistResult& result : failed) out.push_back(std::move(result));
    return out;
}

std::string trial_text(const StudyFile& study, const search::Trial& trial) {
    std::string text = fmt::format("trial {}:", trial.number);
    const bool is_complete = trial.state == search::TrialState::complete;
    const search::Objectives values = is_complete ? trial.values : search::values_at(trial, trial.last_step(), std::nullopt);
    for (std::size_t i = 0; i < values.size() && i < study.objectives.size(); ++i)
        text += fmt::format(" {} {:.5g},", study.objectives[i].metric, study.objectives[i].signed_value(values[i]));
    if (!is_complete) text += fmt::format(" after {} of {} epochs,", trial.last_step(), study.scheduler.rungs.last);
    for (std::size_t i = 0; i < study.space.size(); ++i) {
        const search::Parameter& parameter = study.space.parameters[i];
        const double value = trial.configuration[i];
        const bool is_plain = parameter.kind == search::ParameterKind::log || parameter.kind == search::ParameterKind::uniform;
        text += fmt::format(" {}={}", parameter.name, is_plain ? fmt::format("{:.4g}", value) : parameter.text(value));
    }
    return text;
}

}  // namespace millrace::sweep
