#include "report/watch_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/units.h"
#include "base/version.h"
#include "report/diagnosis_forms.h"

namespace millrace::report {
namespace {

using record::MetricInfo;
using record::MetricScope;
using record::SampleSummary;

struct Scale {
    double divisor = 1;
    const char* unit = "";
    int decimals = 1;
};

/// How people read a unit of the table.
Scale scale_of(std::string_view unit, double highest) {
    if (unit == "percent") return {1, "%", 1};
    if (unit == "bytes") return highest < base::kGiB ? Scale{base::kMiB, "MiB", 1} : Scale{base::kGiB, "GiB", 2};
    if (unit == "bytes/second") return {base::kMiB, "MiB/s", 1};
    if (unit == "seconds") return {1e-3, "ms", 2};
    if (unit == "watts") return {1, "W", 1};
    if (unit == "celsius") return {1, "C", 0};
    if (unit == "megahertz") return {1, "MHz", 0};
    return {1, "", 2};
}

/// "gpu0 sm active": the key without its unit, which has a column of its own.
std::string label_of(const MetricInfo& metric, int index) {
    std::string label = record::key_of(metric, index);
    for (const char* ending : {"_bytes_per_second", "_percent", "_bytes", "_watts", "_celsius", "_mhz", "_seconds"})
        if (label.ends_with(ending)) {
            label.resize(label.size() - std::char_traits<char>::length(ending));
            break;
        }
    std::replace(label.begin(), label.end(), '/', ' ');
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
}

/// The table is for what varies and is not said elsewhere: no totals, limits, counters or bits, and cores only in the JSON.
bool is_shown(const MetricInfo& metric) {
    if (metric.scope == MetricScope::kCore || metric.kind == record::MetricKind::kCounter) return false;
    if (metric.unit == "bits") return false;
    for (const std::string_view part : {"total_bytes", "limit", "gpu/lost", "sampler/"})
        if (metric.name.find(part) != std::string_view::npos) return false;
    return true;
}

std::string row(const SampleSummary::Entry& entry) {
    const Scale scale = scale_of(entry.metric->unit, entry.statistics.maximum);
    const record::Statistics& s = entry.statistics;
    std::string text = fmt::format("{:<28}", label_of(*entry.metric, entry.index));
    for (const double value : {s.mean, s.median, s.p5, s.p95, s.minimum, s.maximum})
        text +=
            std::isfinite(value) ? fmt::format("{:>10.{}f}", value / scale.divisor, scale.decimals) : fmt::format("{:>10}", "-");
    return text + fmt::format("  {}\n", scale.unit);
}

std::string table(const SampleSummary& summary) {
    std::string text =
        fmt::format("{:<28}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "average", "median", "p5", "p95", "min", "max");
    std::vector<SampleSummary::Entry> entries = summary.entries();
    std::stable_sort(entries.begin(), entries.end(), [](const auto& one, const auto& other) { return one.index < other.index; });
    for (const SampleSummary::Entry& entry : entries)
        if (is_shown(*entry.metric)) text += row(entry);
    return text;
}

std::string seconds_text(double seconds) {
    return base::print_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

std::string energy(const WatchRecord& record) {
    std::string text;
    for (std::size_t at = 0; at < record.facts().gpus.size(); ++at) {
        const auto joules = record.summary().joules(static_cast<int>(at));
        const double window = record.energy_seconds(static_cast<int>(at));
        text += fmt::format("energy     GPU {}: ", at);
        if (!joules)
            text += "not measured (no counter, or fewer than two readings)\n";
        else
            text += fmt::format("{:.0f} J ({:.4g} Wh) by its counter over {}{}\n", *joules, *joules / 3600, seconds_text(window),
                                window > 0 ? fmt::format(", {:.1f} W on average", *joules / window) : "");
    }
    return text;
}

std::string peaks(const WatchRecord& record) {
    std::string text;
    const auto line = [&](const std::string& name, const std::optional<record::Statistics>& used,
                          const std::optional<record::Statistics>& total) {
        if (!used) return;
        text += fmt::format("peak       {}: {}", name, base::print_bytes(static_cast<std::uint64_t>(used->maximum)));
        if (total && total->maximum > 0)
            text += fmt::format(" of {} ({:.1f} %)", base::print_bytes(static_cast<std::uint64_t>(total->maximum)),
                                100 * used->maximum / total->maximum);
        text += "\n";
    };
    for (std::size_t at = 0; at < record.facts().gpus.size(); ++at) {
        const int index = static_cast<int>(at);
        line(fmt::format("memory of GPU {}", at), record.summary().of("gpu/memory_used_bytes", index),
             record.summary().of("gpu/memory_total_bytes", index));
    }
    line("memory", record.summary().of("ram/used_bytes"), record.summary().of("ram/total_bytes"));
    line("memory of the watched processes", record.summary().of("process/resident_bytes"), std::nullopt);
    return text;
}

std::string schedule(const WatchRecord& record) {
    const record::Series& late = record.late_milliseconds();
    if (late.empty()) return {};
    const double interval = std::chrono::duration<double, std::milli>(record.interval()).count();
    const record::Statistics of = late.statistics();
    return fmt::format(
        "schedule   late by {:.2f} ms median, {:.2f} p95, {:.2f} at most ({:.2f}, {:.2f}, {:.2f} % of the interval)\n", of.median,
        of.p95, of.maximum, 100 * of.median / interval, 100 * of.p95 / interval, 100 * of.maximum / interval);
}

std::string cost(const WatchOutcome& outcome) {
    if (!(outcome.seconds > 0)) return {};
    return fmt::format("own cost   sampler {:.2f} % of one core, all of this program {:.2f} %\n",
                       100 * outcome.sampler_cpu_seconds / outcome.seconds, 100 * outcome.program_cpu_seconds / outcome.seconds);
}

std::string findings(const std::vector<Finding>& all) {
    std::string text = "verdict\n";
    for (const Finding& finding : all) {
        text += finding.severity == Severity::kWarning ? "  ! " : "  - ";
        if (finding.gpu >= 0) text += fmt::format("GPU {}: ", finding.gpu);
        text += fmt::format("{}\n      {}\n", finding.text, finding.evidence);
    }
    return text;
}

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
    const bool some = !record.late_milliseconds().empty();
    const record::Statistics late = record.late_milliseconds().statistics();
    Json json{{"interval_seconds", interval / 1e3}, {"samples", outcome.samples}, {"missed", outcome.missed}};
    for (const auto& [name, milliseconds] :
         {std::pair{"p50", late.median}, std::pair{"p95", late.p95}, std::pair{"max", late.maximum}}) {
        json[std::string("late_ms_") + name] = some ? number(milliseconds) : Json(nullptr);
        json[std::string("late_percent_") + name] = some ? number(100 * milliseconds / interval) : Json(nullptr);
    }
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

std::string summary_text(const WatchRecord& record, const WatchOutcome& outcome) {
    const sense::MachineFacts& facts = record.facts();
    std::string text =
        fmt::format("watched {} every {}: {} sample{}, {} missed\n", seconds_text(outcome.seconds),
                    base::exact_duration(record.interval()), outcome.samples, outcome.samples == 1 ? "" : "s", outcome.missed);
    if (!outcome.command.empty())
        text +=
            fmt::format("command    {}{}\n", fmt::join(outcome.command, " "),
                        outcome.command_status ? fmt::format(" (exit status {})", *outcome.command_status) : " (still running)");
    text += fmt::format("machine    {}{}{} core{}\n", facts.host, facts.host.empty() ? "" : ": ",
                        (facts.cpu_name.empty() ? "" : facts.cpu_name + ", ") + std::to_string(facts.cores),
                        facts.cores == 1 ? "" : "s");
    for (const sense::GpuFacts& gpu : facts.gpus) text += fmt::format("GPU {}      {}\n", gpu.index, gpu.name);
    if (!facts.gpus.empty() && !facts.gpu_note.empty()) text += fmt::format("note       {}\n", facts.gpu_note);
    if (facts.gpus.empty()) text += fmt::format("no GPU     {}\n", facts.no_gpu.empty() ? "none is visible" : facts.no_gpu);
    if (record.summary().samples() > 0) text += "\n" + table(record.summary()) + "\n";
    text += energy(record) + peaks(record) + schedule(record) + cost(outcome);
    if (outcome.dropped_rows > 0)
        text += fmt::format("dropped    {} rows that outputs were too slow for\n", outcome.dropped_rows);
    for (const std::string& output : outcome.lost_outputs) text += fmt::format("lost       {}\n", output);
    return text + findings(verdict(record));
}

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
