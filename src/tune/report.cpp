#include "tune/tune.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "base/version.h"
#include "train/recipe_keys.h"

namespace millrace::tune {
namespace {

using Json = nlohmann::ordered_json;

std::string span_text(const Span& span) { return fmt::format("{:.2f} ({:.2f}-{:.2f})", span.value, span.low, span.high); }

std::string way_text(const Row& row) {
    if (row.stage == "batch") return fmt::format("batch {}{}", row.step_rows, row.own ? " (the recipe's)" : "");
    return fmt::format("{}: {}", row.stage, row.own ? "as it is" : settings_text(row.settings));
}

std::string row_text(const Report& report, const Row& row) {
    const std::string way = way_text(row);
    if (!row.failure.empty()) {
        std::string why = row.failure;
        std::ranges::replace(why, '\n', ' ');
        return fmt::format("  {:<44} not timed: {}\n", way, why);
    }
    return fmt::format("{} {:<44} {:>11} {:>9.3f} {:>10} {:>9} {:>6} {:>7.3f}  {}\n", row.chosen ? "*" : " ", way,
                       base::print_count(static_cast<std::uint64_t>(std::llround(row.samples_per_second))),
                       1e3 * row.step_seconds,
                       base::print_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, row.memory))),
                       row.joules_per_sample ? fmt::format("{:.3g}", 1e3 * *row.joules_per_sample) : "-",
                       report.streamed ? base::print_percent(row.wait_share) : "-", row.ratio.value,
                       row.time_to_target     ? span_text(*row.time_to_target)
                       : row.stage == "batch" ? "not known"
                                              : "");
}

std::string noise_text(const Report& report) {
    const NoiseRun& noise = report.noise;
    if (!noise.scale.known) return fmt::format("gradient noise scale: not known: {}\n", noise.reason);
    std::string text = fmt::format(
        "gradient noise scale: {:.0f} samples ({:.0f} to {:.0f}), over {} steps of training, from norms of {} and {} samples\n",
        noise.scale.samples.value, noise.scale.samples.low, noise.scale.samples.high, noise.steps, noise.small, noise.big);
    const auto own = static_cast<double>(report.step_rows);
    const auto samples = [&](double times) { return span_text(time_to_target(noise.scale, times * own, own)); };
    text += fmt::format("  the same loss needs {} times the samples with twice the batch, {} times with eight times the batch\n",
                        samples(2), samples(8));
    return text + "time to target: to the same loss, over that of the recipe's batch, each at its best learning rate\n";
}

std::string targets_text(const Report& report, const TargetRun& targets) {
    if (!targets.reason.empty()) return fmt::format("time to target: not measured: {}\n", targets.reason);
    std::string text = fmt::format(
        "time to target: measured to losses of {} within {} {}, over that of the recipe's batch, each at its best learning "
        "rate\n",
        targets.validation ? "validation" : "training", base::print_count(static_cast<std::uint64_t>(targets.samples)),
        report.unit);
    for (const TargetBatch& batch : targets.batches) {
        if (batch.rows == report.step_rows) continue;
        text += fmt::format("  batch {:<8}", batch.rows);
        if (!batch.samples) {
            text += fmt::format("not known: {}\n", batch.failure);
            continue;
        }
        text += fmt::format("{} times the samples, learning rate x {:.2f}", span_text(*batch.samples), batch.rate);
        if (report.noise.scale.known)
            text += fmt::format("; predicted {}", span_text(time_to_target(report.noise.scale, static_cast<double>(batch.rows),
                                                                           static_cast<double>(report.step_rows))));
        text += "\n";
    }
    return text;
}

Json span_json(const Span& span) { return {{"value", span.value}, {"low", span.low}, {"high", span.high}}; }

Json settings_json(const Settings& settings) {
    Json json = Json::object();
    for (const Setting& each : settings) json[each.key] = each.value;
    return json;
}

Json row_json(const Row& row) {
    Json json{{"stage", row.stage}, {"settings", settings_json(row.settings)}, {"own", row.own}, {"chosen", row.chosen}};
    json["failure"] = row.failure.empty() ? Json() : Json(row.failure);
    json["batch"] = row.step_rows > 0 ? Json(row.step_rows) : Json();
    if (!row.failure.empty()) return json;
    json["samples_per_second"] = row.samples_per_second;
    json["step_ms"] = 1e3 * row.step_seconds;
    json["ratio"] = span_json(row.ratio);
    json["memory_bytes"] = row.memory;
    json["joules_per_sample"] = row.joules_per_sample ? Json(*row.joules_per_sample) : Json();
    json["loader_wait"] = row.wait_share;
    json["time_to_target"] = row.time_to_target ? span_json(*row.time_to_target) : Json();
    return json;
}

Json noise_json(const NoiseRun& noise) {
    Json json{{"known", noise.scale.known}, {"reason", noise.reason.empty() ? Json() : Json(noise.reason)}};
    json["samples"] = noise.points > 0 ? span_json(noise.scale.samples) : Json();
    json["parts"] = noise.scale.segments;
    json["steps"] = noise.steps;
    json["points"] = noise.points;
    json["small_batch"] = noise.small;
    json["big_batch"] = noise.big;
    return json;
}

Json targets_json(const TargetRun& targets) {
    Json json{{"reason", targets.reason.empty() ? Json() : Json(targets.reason)},
              {"loss", targets.validation ? "validation" : "training"},
              {"samples", targets.samples},
              {"batches", Json::array()}};
    for (const TargetBatch& batch : targets.batches)
        json["batches"].push_back({{"batch", batch.rows},
                                   {"failure", batch.failure.empty() ? Json() : Json(batch.failure)},
                                   {"samples", batch.samples ? span_json(*batch.samples) : Json()},
                                   {"rate_factor", batch.rate}});
    return json;
}

}  // namespace

std::string report_text(const Report& report) {
    std::string text = fmt::format("device   {}\nmachine  {}\n\n", report.device, report.machine);
    text += fmt::format("  {:<44} {:>11} {:>9} {:>10} {:>9} {:>6} {:>7}  {}\n", "", "samples/s", "step ms", "memory", "mJ/sample",
                        "wait", "time", "time to target");
    for (const Row& row : report.rows) text += row_text(report, row);
    text += "  time: per sample, over the fastest of the same stage; wait: share of a step; *: chosen\n\n";
    text += noise_text(report);
    if (report.targets) text += targets_text(report, *report.targets);
    if (report.changes.empty()) return text + fmt::format("nothing to change: {:.0f} s\n", report.seconds);
    for (const std::string& reason : report.reasons) text += reason + "\n";
    return text + fmt::format("in all {:.2f} times the samples per second: {:.0f} s\n", report.speedup, report.seconds);
}

std::string report_json(const Report& report) {
    Json json{{"format", 1},
              {"millrace", base::version()},
              {"recipe", report.recipe},
              {"device", report.device},
              {"machine", report.machine},
              {"unit", report.unit},
              {"batch", report.step_rows},
              {"streamed", report.streamed}};
    json["reader_seconds_per_sample"] = report.reader_seconds ? Json(*report.reader_seconds) : Json();
    json["rows"] = Json::array();
    for (const Row& row : report.rows) json["rows"].push_back(row_json(row));
    json["noise_scale"] = noise_json(report.noise);
    json["targets"] = report.targets ? targets_json(*report.targets) : Json();
    json["changes"] = settings_json(report.changes);
    json["reasons"] = report.reasons;
    json["speedup"] = report.speedup;
    json["seconds"] = report.seconds;
    return base::json_text(json, 1);
}

base::Result<std::string> tuned_recipe(const base::Recipe& recipe, const Report& report, const std::string& date) {
    MILLRACE_LET(tuned, with_settings(recipe, report.changes));
    MILLRACE_LET(usual, train::parse_recipe(
                            "", "defaults",
                            {{"model.name=" + recipe.text("model.name"), "model.preset=" + recipe.text("model.preset")}, {}}));
    const auto comment = [](std::string line) {
        std::ranges::replace(line, '\n', ' ');
        return "# " + line + "\n";
    };
    std::string text = fmt::format("{} {}, {}\n", kTunedMark, base::version(), date);
    text += comment("recipe   " + report.recipe) + comment("device   " + report.device) + comment("machine  " + report.machine);
    for (const std::string& reason : report.reasons) text += comment(reason);
    if (report.reasons.empty()) text += comment("nothing was faster than the recipe as it was");
    // Keys without a table come first; model.name and model.preset say what the rest means, and may be the defaults.
    std::map<std::string, std::string> tables;
    tables["model"] = fmt::format("name = \"{}\"\npreset = \"{}\"\n", recipe.text("model.name"), recipe.text("model.preset"));
    for (const base::RecipeDifference& each : tuned.differences(usual)) {
        const std::size_t dot = each.name.rfind('.');
        const std::string table = dot == std::string::npos ? "" : each.name.substr(0, dot);
        tables[table] += fmt::format("{} = {}\n", each.name.substr(dot == std::string::npos ? 0 : dot + 1), each.left);
    }
    for (const auto& [name, keys] : tables) text += name.empty() ? keys : fmt::format("\n[{}]\n{}", name, keys);
    MILLRACE_LET(again, train::parse_recipe(text, "the tuned recipe", {}));
    MILLRACE_ASSERT(again == tuned, "the recipe that is written says what was chosen");
    return text;
}

}  // namespace millrace::tune
