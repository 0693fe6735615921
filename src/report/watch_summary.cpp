#include "report/watch_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

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
    const double p50 = late.quantile(0.5), p95 = late.quantile(0.95), worst = late.statistics().maximum;
    return fmt::format(
        "schedule   late by {:.2f} ms median, {:.2f} p95, {:.2f} at most ({:.2f}, {:.2f}, {:.2f} % of the interval)\n", p50, p95,
        worst, 100 * p50 / interval, 100 * p95 / interval, 100 * worst / interval);
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

}  // namespace millrace::report
