#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "report/compare_text.h"
#include "report/json_number.h"

namespace millrace::report {
namespace {

Json side_json(const diagnose::CompareSide& side, const diagnose::SpeedSummary& speed, std::size_t recordings) {
    const bool some = speed.blocks > 0;
    const auto measured = [some](double value) { return some ? number(value) : Json(nullptr); };
    Json json{{"title", side.title.empty() ? Json(nullptr) : Json(side.title)}};
    json["steps_per_second"] = {{"median", measured(speed.median)},
                                {"p10", measured(speed.low)},
                                {"p90", measured(speed.high)},
                                {"mean", measured(speed.mean)}};
    json["recordings"] = recordings;
    json["blocks"] = speed.blocks;
    json["seconds"] = speed.seconds;
    json["steps"] = speed.steps;
    json["busy_share"] = number(side.busy_share);
    json["breakdown"] = Json(nullptr);
    if (side.breakdown_ms) {
        json["breakdown"] = Json::object();
        for (std::size_t at = 0; at < diagnose::kOwners; ++at)
            json["breakdown"][std::string(name_of(static_cast<diagnose::Owner>(at)))] = number((*side.breakdown_ms)[at]);
    }
    return json;
}

}  // namespace

std::string compare_json(const ComparisonReport& report) {
    const diagnose::Comparison& comparison = report.comparison;
    Json json{{"schema", kComparisonSchema}, {"verdict", name_of(comparison.verdict)}};
    json["change"] = number(comparison.change);
    json["change_low"] = number(comparison.change_low);
    json["change_high"] = number(comparison.change_high);
    json["p"] = number(comparison.p);
    json["exact"] = comparison.exact;
    json["alpha"] = report.settings.alpha;
    json["min_effect"] = report.settings.min_effect;
    json["min_spread"] = report.settings.min_spread;
    json["spread"] = comparison.spread;
    json["run_spread"] = comparison.run_spread;
    json["assumed_spread"] = comparison.assumed_spread;
    json["run_spread_measured"] = diagnose::has_run_spread(comparison);
    json["block_seconds"] = comparison.block_seconds;
    json["more_seconds"] = number(comparison.more_seconds);
    const double least = diagnose::least_loss_shown(comparison, report.settings);
    const double change =
        report.gate ? -std::max(report.gate->allowed, report.settings.min_effect) : comparison.change.value_or(0);
    json["least_loss_shown"] = least > 0 ? Json(least) : Json(nullptr);
    json["recordings_needed"] =
        least > 0 && change != 0 ? Json(diagnose::recordings_needed(comparison, change, report.settings)) : Json(nullptr);
    json["before"] = side_json(report.before, comparison.before, comparison.recordings_before);
    json["after"] = side_json(report.after, comparison.after, comparison.recordings_after);
    json["remarks"] = comparison.remarks;
    json["gate"] = Json(nullptr);
    if (report.gate) {
        const bool told = !diagnose::is_open(comparison, report.gate->allowed, report.settings);
        json["gate"] = {{"allowed", report.gate->allowed}, {"failed", told ? Json(report.gate->failed) : Json(nullptr)}};
    }
    return base::json_text(json, 2) + "\n";
}

}  // namespace millrace::report
