#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/version.h"
#include "report/json_number.h"
#include "report/watch_summary.h"

namespace millrace::report {
namespace {

/// What the division of two measured figures gives, nothing when there was no time to divide by.
Json share(double part, double whole) { return whole > 0 ? number(100 * part / whole) : Json(nullptr); }

Json machine(const sense::MachineFacts& facts) {
    Json json{{"host", facts.host}, {"cpu", facts.cpu_name}, {"cores", facts.cores}};
    json["driver"] = facts.driver.empty() ? Json(nullptr) : Json(facts.driver);
    json["no_gpu"] = facts.no_gpu.empty() ? Json(nullptr) : Json(facts.no_gpu);
    json["gpu_note"] = facts.gpu_note.empty() ? Json(nullptr) : Json(facts.gpu_note);
    json["gpus"] = Json::array();
    for (const sense::GpuFacts& gpu : facts.gpus)
        json["gpus"].push_back({{"index", gpu.index},
                                {"driver_index", gpu.driver_index},
                                {"name", gpu.name},
                                {"uuid", gpu.uuid},
                                {"pci_bus", gpu.pci_bus},
                                {"memory_total_bytes", number(gpu.memory_total_bytes)},
                                {"power_limit_watts", number(gpu.power_limit_watts)},
                                {"has_activity", gpu.has_activity}});
    return json;
}

Json schedule(const WatchRecord& record, const WatchOutcome& outcome) {
    const double interval = std::chrono::duration<double, std::milli>(record.interval()).count();
    const record::Series& late = record.late_milliseconds();
    Json json{{"interval_seconds", interval / 1e3}, {"samples", outcome.samples}, {"missed", outcome.missed}};
    const auto put = [&](const char* name, const std::optional<double>& milliseconds) {
        json[std::string("late_ms_") + name] = number(milliseconds);
        json[std::string("late_percent_") + name] = milliseconds ? number(100 * *milliseconds / interval) : Json(nullptr);
    };
    const bool some = !late.empty();
    put("p50", some ? std::optional(late.quantile(0.5)) : std::nullopt);
    put("p95", some ? std::optional(late.quantile(0.95)) : std::nullopt);
    put("max", some ? std::optional(late.statistics().maximum) : std::nullopt);
    return json;
}

Json metrics(const record::SampleSummary& summary) {
    Json json = Json::object();
    for (const record::SampleSummary::Entry& entry : summary.entries()) {
        const record::Statistics& s = entry.statistics;
        json[record::key_of(*entry.metric, entry.index)] = {
            {"unit", entry.metric->unit}, {"count", s.count},     {"mean", number(s.mean)},   {"median", number(s.median)},
            {"p5", number(s.p5)},         {"p95", number(s.p95)}, {"min", number(s.minimum)}, {"max", number(s.maximum)}};
    }
    return json;
}

Json energy_json(const WatchRecord& record) {
    Json json = Json::array();
    for (std::size_t at = 0; at < record.facts().gpus.size(); ++at) {
        const auto joules = record.summary().joules(static_cast<int>(at));
        json.push_back({{"gpu", at},
                        {"joules", number(joules)},
                        {"watt_hours", joules ? number(*joules / 3600) : Json(nullptr)},
                        {"window_seconds", record.energy_seconds(static_cast<int>(at))}});
    }
    return json;
}

Json findings_json(const std::vector<Finding>& all) {
    Json json = Json::array();
    for (const Finding& finding : all)
        json.push_back({{"kind", finding.kind},
                        {"severity", finding.severity == Severity::kWarning ? "warning" : "info"},
                        {"gpu", finding.gpu >= 0 ? Json(finding.gpu) : Json(nullptr)},
                        {"text", finding.text},
                        {"evidence", finding.evidence}});
    return json;
}

}  // namespace

std::string summary_json(const WatchRecord& record, const WatchOutcome& outcome) {
    Json json{{"kind", "summary"}, {"version", kWatchSummaryVersion}, {"millrace", base::version()}};
    json["seconds"] = outcome.seconds;
    json["command"] = outcome.command.empty() ? Json(nullptr) : Json(outcome.command);
    json["exit_status"] = outcome.command_status ? Json(*outcome.command_status) : Json(nullptr);
    json["machine"] = machine(record.facts());
    json["schedule"] = schedule(record, outcome);
    json["cost"] = {{"sampler_cpu_seconds", outcome.sampler_cpu_seconds},
                    {"sampler_percent_of_one_core", share(outcome.sampler_cpu_seconds, outcome.seconds)},
                    {"program_cpu_seconds", outcome.program_cpu_seconds},
                    {"program_percent_of_one_core", share(outcome.program_cpu_seconds, outcome.seconds)}};
    json["energy"] = energy_json(record);
    json["metrics"] = metrics(record.summary());
    json["findings"] = findings_json(verdict(record));
    json["dropped_rows"] = outcome.dropped_rows;
    json["lost_outputs"] = outcome.lost_outputs;
    // Names come from drivers and users: bytes that are no UTF-8 must not end the watch with an exception.
    return base::json_text(json);
}

}  // namespace millrace::report
