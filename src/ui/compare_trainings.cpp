#include "ui/compare_trainings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "ui/run_json.h"
#include "ui/run_table.h"

namespace millrace::ui {
namespace {

constexpr std::size_t kCurveRows = 12;

std::optional<RunSummary> training_in(const std::string& path) {
    const auto folder = io::HeldFolder::open(path);
    if (!folder.ok()) return std::nullopt;
    RunFollower follower(".");
    if (!follower.look(*folder).ok() || follower.summary().kind != "training") return std::nullopt;
    RunSummary run = follower.summary();
    run.name = path;
    return run;
}

std::string figure_of(const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

std::string score_of(const std::optional<double>& value, const std::string& metric) {
    return value ? fmt::format("{:.4g} {}", *value, metric) : "-";
}

std::optional<double> at_epoch(const RunSummary& run, double epoch) {
    const auto found = std::ranges::find(run.curve, epoch, &std::pair<double, double>::first);
    return found == run.curve.end() ? std::nullopt : std::optional(found->second);
}

/// Epochs of either curve, evenly chosen, the last one included.
std::vector<double> curve_epochs(const RunSummary& before, const RunSummary& after) {
    std::set<double> all;
    for (const RunSummary* run : {&before, &after})
        for (const auto& [epoch, loss] : run->curve) all.insert(epoch);
    const std::vector<double> epochs(all.begin(), all.end());
    std::vector<double> chosen;
    const std::size_t rows = std::min(kCurveRows, epochs.size());
    for (std::size_t i = 0; i < rows; ++i) chosen.push_back(epochs[rows == 1 ? 0 : i * (epochs.size() - 1) / (rows - 1)]);
    return chosen;
}

std::vector<std::string> differing_keys(const RunSummary& before, const RunSummary& after) {
    std::set<std::string> keys;
    for (const RunSummary* run : {&before, &after})
        for (const auto& [key, value] : run->recipe) keys.insert(key);
    std::vector<std::string> differing;
    for (const std::string& key : keys) {
        const auto left = before.recipe.find(key), right = after.recipe.find(key);
        const bool both = left != before.recipe.end() && right != after.recipe.end();
        if (!both || left->second != right->second) differing.push_back(key);
    }
    return differing;
}

std::string recipe_value(const RunSummary& run, const std::string& key) {
    const auto found = run.recipe.find(key);
    return found == run.recipe.end() ? "absent" : found->second;
}

}  // namespace

std::optional<std::pair<RunSummary, RunSummary>> two_trainings(const std::string& before, const std::string& after) {
    auto first = training_in(before), second = training_in(after);
    if (!first || !second) return std::nullopt;
    return std::pair(*std::move(first), *std::move(second));
}

std::string trainings_text(const RunSummary& before, const RunSummary& after) {
    std::vector<std::vector<std::string>> rows{{"", before.name, after.name}};
    const auto add = [&](const std::string& name, auto value) { rows.push_back({name, value(before), value(after)}); };
    add("model", [](const RunSummary& run) { return run.model; });
    add("state", [](const RunSummary& run) { return run.state; });
    add("epochs", [](const RunSummary& run) { return fmt::format("{} of {}", run.epoch, run.epochs); });
    add("best", [](const RunSummary& run) { return score_of(run.best, run.metric); });
    add("  in epoch", [](const RunSummary& run) { return run.best ? std::to_string(run.best_epoch) : "-"; });
    add("test", [](const RunSummary& run) { return score_of(run.test, run.test_metric); });
    add("loss", [](const RunSummary& run) { return figure_of(run.loss); });
    add("trained", [](const RunSummary& run) { return fmt::format("{:.1f} s", run.seconds); });
    add("samples per second",
        [](const RunSummary& run) { return run.speed ? base::print_figures(*run.speed, 4) : std::string("-"); });
    const std::vector<std::string> keys = differing_keys(before, after);
    rows.push_back({keys.empty() ? "the recipes are equal" : "recipe", "", ""});
    for (const std::string& key : keys) rows.push_back({"  " + key, recipe_value(before, key), recipe_value(after, key)});
    const std::vector<double> epochs = curve_epochs(before, after);
    if (!epochs.empty()) rows.push_back({"loss after epoch", "", ""});
    for (const double epoch : epochs)
        rows.push_back({fmt::format("  {:g}", epoch), figure_of(at_epoch(before, epoch)), figure_of(at_epoch(after, epoch))});
    return columns_text(rows);
}

nlohmann::ordered_json trainings_json(const RunSummary& before, const RunSummary& after) {
    nlohmann::ordered_json json{{"before", run_json(before)}, {"after", run_json(after)}};
    json["differing_keys"] = nlohmann::ordered_json::object();
    for (const std::string& key : differing_keys(before, after))
        json["differing_keys"][key] = {recipe_value(before, key), recipe_value(after, key)};
    return json;
}

}  // namespace millrace::ui
