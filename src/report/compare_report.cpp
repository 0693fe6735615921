#include "report/compare_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/units.h"
#include "report/doctor_words.h"
#include "report/terminal.h"

namespace millrace::report {
namespace {

using diagnose::Owner;
using diagnose::SpeedSummary;
using diagnose::Verdict;

constexpr std::size_t kBeforeColumn = 24, kAfterColumn = 40, kChangeColumn = 56;
constexpr double kSmallOnBothSides = 0.005;  ///< of a step: owners below on both sides are left out

std::string rounded_seconds(double seconds) {
    return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", std::ceil(seconds));
}

std::string speed_text(double speed) { return base::print_figures(speed, 4); }

class CompareWriter {
public:
    CompareWriter(const ComparisonReport& report, const TextOptions& options)
        : report_(report), comparison_(report.comparison), options_(options) {}

    std::string text() {
        verdict();
        table();
        basis();
        for (const std::string& remark : comparison_.remarks) paragraph("note: " + remark, Tone::kPlain);
        gate();
        return std::move(text_);
    }

private:
    ViewLine line() const { return {options_.width, options_.colour}; }
    void put(const ViewLine& line) { text_ += line.text() + "\n"; }
    void paragraph(const std::string& text, Tone tone) {
        for (const std::string& part : wrapped(text, options_.width)) put(line().add(part, tone));
    }

    void verdict() {
        const double change = comparison_.change.value_or(0);
        switch (comparison_.verdict) {
            case Verdict::kBetter:
                return paragraph(fmt::format("better: {:.1f} % more steps per second", 100 * change), Tone::kGood);
            case Verdict::kWorse:
                return paragraph(fmt::format("worse: {:.1f} % fewer steps per second", -100 * change), Tone::kBad);
            case Verdict::kNoDifference: return paragraph(no_difference(), Tone::kStrong);
            case Verdict::kTooFewBlocks:
                paragraph("no difference shown: too few blocks of speed" +
                              (comparison_.change ? fmt::format(", {:+.1f} % may be noise", 100 * change) : ""),
                          Tone::kCaution);
                if (comparison_.more_seconds)
                    paragraph(fmt::format("Record each run at least {} longer.", rounded_seconds(*comparison_.more_seconds)),
                              Tone::kPlain);
                return;
        }
    }

    std::string no_difference() const {
        const diagnose::CompareSettings& settings = report_.settings;
        if (comparison_.more_seconds)
            return fmt::format(
                "no difference shown: {:+.1f} % may be noise; it is more than two runs of one program differ by, but these are "
                "too short to be certain; some {} more of each may show it",
                100 * *comparison_.change, rounded_seconds(*comparison_.more_seconds));
        if (!comparison_.p || !comparison_.change) return "no difference";
        if (*comparison_.p >= settings.alpha)
            return fmt::format("no difference: {:+.1f} % is within the noise", 100 * *comparison_.change);
        if (std::abs(*comparison_.change) < settings.min_effect)
            return fmt::format("no difference: {:+.1f} % is less than the least effect of {:g} % (--min-effect)",
                               100 * *comparison_.change, 100 * settings.min_effect);
        if (comparison_.run_spread >= comparison_.assumed_spread)
            return fmt::format(
                "no difference: {:+.1f} % is within the noise, less than {:g} times what runs of such a program differ by, "
                "{:.2g} % (assumed, by what the host does of a step: --run-spread); a change of that size needs {}",
                100 * *comparison_.change, settings.min_spread, 100 * comparison_.run_spread, recordings(*comparison_.change));
        return fmt::format(
            "no difference: {:+.1f} % is within the noise, less than {:g} times (--min-spread) the {:.2g} % that two runs of one "
            "program differ by where blocks within them differ by {:.2g} %",
            100 * *comparison_.change, settings.min_spread, 100 * comparison_.assumed_spread, 100 * comparison_.spread);
    }

    std::string recordings(double change) const {
        return fmt::format("{} recordings of each side at most (millrace record --repeat)",
                           diagnose::recordings_needed(comparison_, change, report_.settings));
    }

    void row(const std::string& label, const std::string& before, const std::string& after, const std::string& change,
             Tone tone = Tone::kPlain) {
        ViewLine columns = line();
        columns.add(label)
            .pad(kBeforeColumn)
            .add(fmt::format("{:>14}", before))
            .pad(kAfterColumn)
            .add(fmt::format("{:>14}", after));
        if (!change.empty()) columns.pad(kChangeColumn).add(fmt::format("{:>12}", change), tone);
        put(columns);
    }

    void table() {
        put(line());
        row("", "before", "after", "change");
        const SpeedSummary &one = comparison_.before, &other = comparison_.after;
        const auto speed = [](const SpeedSummary& side, double value) {
            return side.blocks > 0 ? speed_text(value) : std::string("not measured");
        };
        const std::string change = comparison_.change ? fmt::format("{:+.1f} %", 100 * *comparison_.change) : "";
        row("steps per second", speed(one, one.median), speed(other, other.median), change, tone_of_verdict());
        const auto range = [](const SpeedSummary& side) {
            return side.blocks > 0 ? fmt::format("{}-{}", speed_text(side.low), speed_text(side.high)) : std::string("-");
        };
        row("  p10 to p90 of blocks", range(one), range(other),
            comparison_.change_low
                ? fmt::format("{:+.1f} to {:+.1f} %", 100 * *comparison_.change_low, 100 * *comparison_.change_high)
                : "");
        const auto share = [](const std::optional<double>& value) {
            return value ? fmt::format("{:.1f} %", 100 * *value) : std::string("not measured");
        };
        const auto &busy = report_.before.busy_share, &busy_after = report_.after.busy_share;
        if (busy || busy_after)
            row("GPU busy", share(busy), share(busy_after),
                busy && busy_after ? fmt::format("{:+.1f} points", 100 * (*busy_after - *busy)) : "");
        owners();
        put(line());
    }

    void owners() {
        const auto &one = report_.before.breakdown_ms, &other = report_.after.breakdown_ms;
        if (!one && !other) return;
        const auto sum = [](const auto& all) { return all ? diagnose::sum_of(*all) : 0; };
        const double least = kSmallOnBothSides * std::max(sum(one), sum(other));
        put(line().add("ms of a step", Tone::kFaint));
        const auto text = [](const auto& all, std::size_t at) {
            return all ? fmt::format("{:.3f}", (*all)[at]) : std::string("not measured");
        };
        for (std::size_t at = 0; at < diagnose::kOwners; ++at) {
            const double before = one ? (*one)[at] : 0, after = other ? (*other)[at] : 0;
            if (std::max(before, after) < least || std::max(before, after) <= 0) continue;
            row("  " + std::string(words_of(static_cast<Owner>(at)).label), text(one, at), text(other, at),
                one && other ? fmt::format("{:+.3f}", after - before) : "");
        }
    }

    Tone tone_of_verdict() const {
        return comparison_.verdict == Verdict::kBetter  ? Tone::kGood
               : comparison_.verdict == Verdict::kWorse ? Tone::kBad
                                                        : Tone::kPlain;
    }

    void basis() {
        std::string text =
            fmt::format("{} and {} blocks of at least {} ({} and {} of undisturbed running)", comparison_.before.blocks,
                        comparison_.after.blocks, rounded_seconds(comparison_.block_seconds),
                        rounded_seconds(comparison_.before.seconds), rounded_seconds(comparison_.after.seconds));
        if (diagnose::has_run_spread(comparison_)) {
            text += fmt::format(" in {} and {} recordings", comparison_.recordings_before, comparison_.recordings_after);
            if (comparison_.p)
                text += fmt::format("; those of one side differ by {:.2g} %, p = {:.2g} against {:g}",
                                    100 * comparison_.run_spread, *comparison_.p, report_.settings.alpha);
        } else if (comparison_.p)
            text += fmt::format("; {}, p = {:.2g} against {:g}", comparison_.exact ? "all permutations" : "ranks",
                                *comparison_.p, report_.settings.alpha);
        paragraph(text, Tone::kFaint);
    }

    void gate() {
        if (!report_.gate) return;
        const double allowed = report_.gate->allowed, wanted = std::max(allowed, report_.settings.min_effect);
        std::string blind;
        if (const double least = diagnose::least_loss_shown(comparison_, report_.settings); least > wanted)
            blind = fmt::format("; these recordings show no loss below {:.2g} %, one of {:g} % needs {}", 100 * least,
                                100 * wanted, recordings(-wanted));
        if (comparison_.verdict == Verdict::kTooFewBlocks)
            paragraph("gate: cannot tell, too few blocks", Tone::kCaution);
        else if (diagnose::is_open(comparison_, report_.gate->allowed, report_.settings))
            paragraph(fmt::format("gate: cannot tell, slower by more than {:g} % but not certainly so{}", 100 * allowed,
                                  blind.empty() ? "; longer runs tell more" : blind),
                      Tone::kCaution);
        else if (report_.gate->failed)
            paragraph(fmt::format("gate: failed, slower by more than {:g} %", 100 * allowed), Tone::kBad);
        else
            paragraph(fmt::format("gate: passed, not shown to be slower by more than {:g} %{}", 100 * allowed, blind),
                      blind.empty() ? Tone::kGood : Tone::kCaution);
    }

    const ComparisonReport& report_;
    const diagnose::Comparison& comparison_;
    TextOptions options_;
    std::string text_;
};

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

std::string compare_text(const ComparisonReport& report, const TextOptions& options) {
    return CompareWriter(report, options).text();
}

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
