#include "diagnose/compare/compare.h"
#include "base/json.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/run_arguments.h"
#include "diagnose/diagnose.h"
#include "report/compare_report.h"
#include "ui/run_table.h"

namespace millrace::cli {
namespace {

struct CompareArguments {
    std::string before, after, min_effect = "2%", run_spread = "8%";
    std::vector<std::string> more_before, more_after;
    double min_spread = diagnose::CompareSettings{}.min_spread;
    std::optional<std::string> fail_if_slower;
    bool json = false;
};

constexpr const char* kCompareFooter =
    R"(BEFORE and AFTER are what `millrace diagnose` reads: runs of `millrace record` or `millrace train`, traces of PyTorch's profiler.
Of two trainings it also prints the keys in which their recipes differ, scores, speed and the loss after the same epochs.

Compared is the speed outside of recording windows, in blocks of at least half a second, by a permutation test: "better" and "worse"
are said when equal runs would part as far in less than one of a thousand cases and the medians differ by --min-effect at least, and
by --min-spread times what the unrest within runs makes of them, and what runs of such a program differ by: one process is faster than
the next, by where its memory lies and what else its core has to do. Of one recording of each side that is assumed (--run-spread, of
the part of a step in which no GPU computes); with more of them (--before, --after) it is measured, and a t test on the recordings
can decide, too. Small changes of programs whose pace the host sets need that: how many is said. A folder that `record --repeat`
filled stands for all recordings in it.

Examples:
  millrace record -o runs/slow -- python train.py
  millrace record -o runs/cured -- python train_cured.py
  millrace compare runs/slow runs/cured
  millrace compare runs/main runs/branch --fail-if-slower 5%     a gate for CI
  millrace record --repeat 5 -o runs/main -- python train.py     and the same for runs/branch: five recordings of each side
  millrace compare m1 b1 --before m2 --after b2 --before m3 --after b3     three recordings of each side, made in turn

Exit status: 0 compared, 1 slower by more than --fail-if-slower allows, 2 usage or bad input, 4 nothing to compare: a run without
any block of speed, or, with --fail-if-slower, runs that are too short to judge by or slower by more than it allows but not certainly
so.)";

constexpr int kRegression = 1;

base::Result<double> share_of(const char* option, const std::string& text, double most) {
    const auto share = base::parse_percent(text);
    if (!share.ok()) return base::Error{share.error().message, option};
    if (!(*share >= 0) || *share > most)
        return base::Error{"'" + text + "' is out of range: from 0% to " + base::print_percent(most), option};
    return *share;
}

base::Result<diagnose::CompareSide> side_of(const std::string& path) {
    MILLRACE_LET(timeline, read_run_with_progress(path));
    const diagnose::Diagnosis diagnosis = diagnose::diagnose(timeline);
    diagnose::CompareSide side;
    side.title = diagnosis.title;
    side.blocks = diagnose::speed_blocks(timeline, diagnosis);
    if (diagnosis.steps > 0) {
        side.busy_share = diagnosis.busy_share;
        side.breakdown_ms = diagnosis.breakdown_ms;
    }
    return side;
}

/// Of a folder that `record --repeat` filled, the runs in it; else the path itself.
std::vector<std::string> recordings_in(const io::Path& path) {
    std::vector<std::string> runs;
    std::error_code ignored;
    const auto add = [&](const io::Path& run) {
        const bool there = std::filesystem::exists(run / "manifest.json", ignored);
        if (there) runs.push_back(run.string());
        return there;
    };
    if (!add(path))
        for (int number = 1; add(path / std::to_string(number));) ++number;
    return runs.empty() ? std::vector{path.string()} : runs;
}

base::Result<std::vector<diagnose::CompareSide>> sides_of(const std::string& first, std::vector<std::string> paths) {
    paths.insert(paths.begin(), first);
    std::vector<diagnose::CompareSide> sides;
    for (const std::string& path : paths)
        for (const std::string& run : recordings_in(path)) MILLRACE_SET(sides.emplace_back(), side_of(run));
    return sides;
}

/// Recipes, scores and curves of two trainings, and their speed where they ran long enough to compare it.
std::string with_trainings(const std::pair<ui::RunSummary, ui::RunSummary>& trainings, bool json, const std::string& speed) {
    const auto& [before, after] = trainings;
    if (!json) return ui::trainings_text(before, after) + (speed.empty() ? "" : "\n" + speed);
    auto whole = speed.empty() ? nlohmann::ordered_json::object() : base::ordered_json_or_throw(speed);
    whole["trainings"] = ui::trainings_json(before, after);
    return base::json_text(whole, 1) + "\n";
}

base::Result<int> run_compare(const CompareArguments& given) {
    report::ComparisonReport report;
    MILLRACE_SET(report.settings.min_effect, share_of("--min-effect", given.min_effect, 1));
    if (!(given.min_spread >= 0)) return base::Error{"a number from 0 on is wanted", "--min-spread"};
    report.settings.min_spread = given.min_spread;
    MILLRACE_SET(report.settings.run_spread, share_of("--run-spread", given.run_spread, 1));
    if (given.fail_if_slower) {  // an empty one, of a variable that is not set, must not open the gate
        MILLRACE_LET(allowed, share_of("--fail-if-slower", *given.fail_if_slower, 1));
        report.gate = report::SpeedGate{allowed, false};
    }
    const auto trainings = ui::two_trainings(given.before, given.after);
    auto before = sides_of(given.before, given.more_before), after = sides_of(given.after, given.more_after);
    const bool read = before.ok() && after.ok();
    const base::Error unread = before.ok() ? after.error() : before.error();
    if (!read && (!trainings || report.gate || unread.exit_status != kNoData)) return unread;
    if (read) report.comparison = diagnose::compare(*before, *after, report.settings);
    const bool has_speed = read && report.comparison.before.blocks > 0 && report.comparison.after.blocks > 0;
    if (trainings && !has_speed && !report.gate) {  // too short to judge their speed by
        say(with_trainings(*trainings, given.json, ""));
        return 0;
    }
    report.before = std::move(before->front());
    report.after = std::move(after->front());
    if (report.gate) report.gate->failed = diagnose::is_slower_by(report.comparison, report.gate->allowed, report.settings);
    const std::string speed = given.json ? report::compare_json(report) : report::compare_text(report, text_options());
    say(trainings ? with_trainings(*trainings, given.json, speed) : speed);
    if (!has_speed) return kNoData;
    if (!report.gate) return 0;
    if (diagnose::is_open(report.comparison, report.gate->allowed, report.settings)) return kNoData;
    return report.gate->failed ? kRegression : 0;
}

}  // namespace

void add_compare(const Command& program) {
    auto [command, given] =
        program.command<CompareArguments>("compare", "tell by measurement whether one run is faster than another", run_compare);
    command.option("before BEFORE", given.before, "the run to measure against").required();
    command.option("after AFTER", given.after, "the run that may be faster or slower").required();
    command.flag("--json", given.json, "print the comparison as JSON");
    command.option("--min-effect PERCENT", given.min_effect, "least change of speed that counts as one").show_default();
    command.option("--before RUN", given.more_before, "one more recording of BEFORE's program; may be given several times");
    command.option("--after RUN", given.more_after, "one more recording of AFTER's program; may be given several times");
    command.option("--run-spread PERCENT", given.run_spread, "assumed standard deviation from run to run of what the host does")
        .show_default();
    command
        .option("--min-spread NUMBER", given.min_spread,
                "least change of speed in standard deviations of runs, assumed or by the unrest within them")
        .show_default();
    command.option("--fail-if-slower PERCENT", given.fail_if_slower,
                   "exit with 1 when AFTER is shown to be slower by more than this");
    command.footer(kCompareFooter);
}

}  // namespace millrace::cli
