#include "ui/run_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/units.h"
#include "base/utf8.h"

namespace millrace::ui {
namespace {

constexpr std::size_t kWidest = 40;
constexpr std::array<std::string_view, 11> kColumns{"name", "kind", "model", "data", "state", "epoch",
                                                    "best", "test", "time",  "when", "device"};

std::string figure_text(const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

std::string time_text(double seconds) {
    if (!(seconds > 0) || seconds > 1e9) return "-";
    return base::print_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)});
}

/// "2025-11-04 12:00" of "2025-11-04T12:00:00Z".
std::string when_text(const std::string& started) {
    std::string text = started.substr(0, 16);
    if (text.size() > 10 && text[10] == 'T') text[10] = ' ';
    return text;
}

std::string column(const RunSummary& run, std::string_view name) {
    if (name == "name") return run.name;
    if (name == "kind") return run.kind;
    if (name == "model") return run.model;
    if (name == "data") return run.data;
    if (name == "state") return run.state;
    if (name == "epoch") return run.epochs > 0 ? fmt::format("{}/{}", run.epoch, run.epochs) : std::to_string(run.epoch);
    if (name == "best") return figure_text(run.best);
    if (name == "test") return figure_text(run.test);
    if (name == "time") return time_text(run.seconds);
    if (name == "when") return when_text(run.started);
    return run.device;
}

std::optional<double> number_of(const RunSummary& run, const std::string& key) {
    if (key == "epoch") return static_cast<double>(run.epoch);
    if (key == "best") return run.best;
    if (key == "test") return run.test;
    if (key == "time") return run.seconds;
    const auto found = run.recipe.find(key);
    if (found == run.recipe.end()) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(found->second.c_str(), &end);
    return end != found->second.c_str() && *end == '\0' ? std::optional(value) : std::nullopt;
}

std::string text_of(const RunSummary& run, const std::string& key) {
    if (key == "when") return run.started;
    if (std::ranges::find(kColumns, key) != kColumns.end()) return column(run, key);
    const auto found = run.recipe.find(key);
    return found == run.recipe.end() ? std::string() : found->second;
}

bool is_known(const std::vector<RunSummary>& runs, const std::string& key) {
    return std::ranges::find(kColumns, key) != kColumns.end() ||
           std::ranges::any_of(runs, [&](const RunSummary& run) { return run.recipe.contains(key); });
}

/// A manifest may hold anything; a terminal must not obey it. As many characters as fit into a column.
std::string shown(const std::string& text, std::size_t most, std::size_t& width) {
    std::string safe;
    width = 0;
    for (std::size_t at = 0; at < text.size() && width < most; ++width) {
        const std::size_t length = base::utf8_length(text, at);
        const bool control = static_cast<unsigned char>(text[at]) < 0x20 || text[at] == 0x7f ||
                             (text[at] == '\xc2' && length == 2 && static_cast<unsigned char>(text[at + 1]) < 0xa0);
        safe += length == 0 || control ? std::string("?") : text.substr(at, length);
        at += std::max<std::size_t>(length, 1);
    }
    return safe;
}

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

std::string recipe_value(const RunSummary& run, const std::string& key) {
    const auto found = run.recipe.find(key);
    return found == run.recipe.end() ? "absent" : found->second;
}

std::vector<std::string> differing_keys(const RunSummary& before, const RunSummary& after) {
    std::set<std::string> keys;
    for (const RunSummary* run : {&before, &after})
        for (const auto& [key, value] : run->recipe)
            if (recipe_value(before, key) != recipe_value(after, key)) keys.insert(key);
    return {keys.begin(), keys.end()};
}

/// Rows in columns.
std::string columns_text(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widest;
    const auto each = [&](auto what) {
        for (const std::vector<std::string>& row : rows)
            for (std::size_t i = 0; i < row.size(); ++i) what(row, i);
    };
    std::size_t width = 0;
    each([&](const auto& row, std::size_t i) {
        widest.resize(std::max(widest.size(), i + 1));
        (void)shown(row[i], kWidest, width);
        widest[i] = std::max(widest[i], width);
    });
    std::string text, line;
    each([&](const auto& row, std::size_t i) {
        line += (i == 0 ? "" : "  ") + shown(row[i], kWidest, width);
        line.append(widest[i] - width, ' ');
        if (i + 1 < row.size()) return;
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
        line.clear();
    });
    return text;
}

}  // namespace

base::Result<RunFilter> parse_run_filter(const std::string& text) {
    const std::size_t at = text.find_first_of("=<>");
    RunFilter filter;
    if (at != std::string::npos) filter = {text.substr(0, at), text.substr(at + 1), text[at]};
    if (filter.key.empty() || filter.value.empty())
        return base::Error{"is no filter: state=finished, best>0.9 or optim.lr<0.01 would be", "--filter " + text};
    if (filter.relation == '=') return filter;
    char* end = nullptr;
    (void)std::strtod(filter.value.c_str(), &end);
    if (*end != '\0') return base::Error{"compares with no number", "--filter " + text};
    return filter;
}

bool fits(const RunSummary& run, const RunFilter& filter) {
    if (filter.relation == '=') {
        if (run.recipe.contains(filter.key) && std::ranges::find(kColumns, filter.key) == kColumns.end())
            return text_of(run, filter.key) == filter.value;
        return text_of(run, filter.key).find(filter.value) != std::string::npos;
    }
    const auto value = number_of(run, filter.key);
    const double limit = std::strtod(filter.value.c_str(), nullptr);
    return value && (filter.relation == '<' ? *value < limit : *value > limit);
}

base::Status sort_runs(std::vector<RunSummary>& runs, const std::string& key, bool reverse) {
    if (!runs.empty() && !is_known(runs, key))
        return base::Error{fmt::format("is no column and no key of a recipe here; columns are {}", fmt::join(kColumns, ", ")),
                           "--sort " + key};
    const auto rank = [&](const RunSummary& run) {
        const auto number = number_of(run, key);
        const bool has_number = number && std::isfinite(*number);
        return std::pair(has_number, has_number ? *number : 0.0);
    };
    std::ranges::stable_sort(runs, [&](const RunSummary& a, const RunSummary& b) {
        const auto left = rank(a), right = rank(b);
        const std::string left_text = text_of(a, key), right_text = text_of(b, key);
        const bool left_absent = !left.first && (left_text.empty() || left_text == "-");
        const bool right_absent = !right.first && (right_text.empty() || right_text == "-");
        if (left_absent != right_absent) return right_absent;
        if (left.first && right.first) return reverse ? right.second < left.second : left.second < right.second;
        return reverse ? right_text < left_text : left_text < right_text;
    });
    return base::ok();
}

std::string runs_text(const std::vector<RunSummary>& runs) {
    constexpr std::array<std::string_view, 9> kShown{"name", "model", "data", "state", "epoch", "best", "test", "time", "when"};
    std::vector<std::vector<std::string>> rows{{kShown.begin(), kShown.end()}};
    for (const RunSummary& run : runs) {
        std::vector<std::string>& row = rows.emplace_back();
        for (const std::string_view name : kShown) {
            const std::string text = column(run, name);
            row.push_back(text.empty() ? "-" : text);
        }
    }
    return columns_text(rows);
}

std::string runs_json(const std::vector<RunSummary>& runs) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const RunSummary& run : runs) list.push_back(run_json(run));
    return base::json_text(list, 1) + "\n";
}

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
    add("loss", [](const RunSummary& run) { return figure_text(run.loss); });
    add("trained", [](const RunSummary& run) { return fmt::format("{:.1f} s", run.seconds); });
    add("samples per second",
        [](const RunSummary& run) { return run.speed ? base::print_figures(*run.speed, 4) : std::string("-"); });
    const std::vector<std::string> keys = differing_keys(before, after);
    rows.push_back({keys.empty() ? "the recipes are equal" : "recipe", "", ""});
    for (const std::string& key : keys) rows.push_back({"  " + key, recipe_value(before, key), recipe_value(after, key)});
    const std::vector<double> epochs = curve_epochs(before, after);
    if (!epochs.empty()) rows.push_back({"loss after epoch", "", ""});
    for (const double epoch : epochs)
        rows.push_back({fmt::format("  {:g}", epoch), figure_text(at_epoch(before, epoch)), figure_text(at_epoch(after, epoch))});
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
