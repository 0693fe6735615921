#include "sweep/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json.h"
#include "base/units.h"

namespace millrace::sweep {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};

std::string finalist_text(const StudyFile& study, const FinalistResult& finalist, std::size_t place) {
    std::string text = fmt::format("{:3}. ", place);
    for (std::size_t i = 0; i < study.objectives.size(); ++i)
        text += fmt::format("{} {}  ", study.objectives[i].metric, summary_text(finalist.objectives[i]));
    for (const auto& [name, summary] : finalist.test) text += fmt::format("{} {}  ", name, summary_text(summary));
    if (finalist.failed > 0) text += fmt::format("{} of its seeds diverged  ", finalist.failed);
    text += fmt::format("(trial {})\n       {}\n", finalist.trials.front(),
                        fmt::join(study.space.settings(finalist.configuration), " "));
    return text;
}

std::string importance_text(const StudyFile& study, const RunReport& report) {
    if (report.importance.empty()) return {};
    std::vector<std::size_t> order(report.importance.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return report.importance[i]; });
    std::vector<std::string> parts;
    for (const std::size_t i : order)
        parts.push_back(fmt::format("{} {:.0f} %", study.space.parameters[i].name, 100 * report.importance[i]));
    return fmt::format("importance for {}: {}\n", study.objectives.front().metric, fmt::join(parts, ", "));
}

std::string counted(std::int64_t count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string counts_text(const Progress& progress) {
    std::string text = fmt::format("{}: {} complete", counted(progress.started, "trial"), progress.complete);
    if (progress.pruned > 0) text += fmt::format(", {} pruned", progress.pruned);
    if (progress.paused > 0) text += fmt::format(", {} paused early (pruned, unless more trials are added)", progress.paused);
    if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
    if (progress.running > 0) text += fmt::format(", {} given back", progress.running);
    return text;
}

/// That a trial had to be trained to its end, and what would have spared it.
std::string finished_text(const StudyFile& study, const RunReport& report) {
    std::string why;
    if (report.is_out_of_time)
        why = ", beyond the time";
    else if (const std::int64_t least = study.scheduler.rungs.least_trials();
             study.scheduler.name == "asha" && report.progress.started < least)
        why = fmt::format("; --trials {} or more bring one there by themselves", least);
    return fmt::format("the search ended before a trial was complete: the best, trial {}, was trained to its end{}\n",
                       *report.progress.finished, why);
}

/// Why there is no finalist.
std::string nobody_text(const StudyFile& study, const RunReport& report) {
    if (study.finalists > 0) return "no trial may win: none is complete and keeps all constraints\n";
    return fmt::format(
        "finalists = 0: none was chosen, so there is no best.toml (replicates = 0 would choose without training again)\n{}",
        report.progress.best.empty() ? "" : fmt::format("best    {}\n", report.progress.best));
}

double share_of(double part, const Times& times) { return times.total > 0 ? 100 * part / times.total : 0; }

}  // namespace

std::string progress_text(const Progress& progress) {
    std::string text = fmt::format("trials {} of {}: {} complete, {} running", progress.started, progress.wanted,
                                   progress.complete, progress.running);
    if (progress.paused > 0) text += fmt::format(", {} paused", progress.paused);
    if (progress.pruned > 0) text += fmt::format(", {} pruned", progress.pruned);
    if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
    if (progress.finished && !progress.is_final)
        text += fmt::format("; none is complete, so trial {}, the best, trains to its end", *progress.finished);
    if (progress.is_final) text += "; finalists are trained again";
    text += fmt::format("  {} of {} lanes", progress.busy_lanes, progress.lanes);
    if (progress.times.total > 0)
        text += fmt::format("  {:.3g} trial-epochs/s", static_cast<double>(progress.trial_epochs) / progress.times.total);
    if (progress.seconds_left >= 0 && progress.seconds_left < 1e9)
        text += fmt::format("  {} left", base::print_duration(std::chrono::seconds(std::llround(progress.seconds_left))));
    if (!progress.best.empty()) text += "\n  best " + progress.best;
    return text;
}

Console::Console(train::ConsoleOptions options, const base::Clock& clock)
    : options_(options), clock_(clock), lines_(options.live), last_(clock.now()) {}

void Console::show(const Progress& progress) {
    if (options_.quiet) return;
    const auto interval = options_.live ? std::chrono::nanoseconds{kLiveInterval} : options_.plain_interval;
    if (clock_.now() - last_ < interval) return;
    last_ = clock_.now();
    if (options_.live) return lines_.draw(progress_text(progress));
    std::fputs((progress_text(progress) + "\n").c_str(), options_.out);
    std::fflush(options_.out);
}

std::string best_command(const RunReport& report) {
    return report.best_recipe.empty() ? "" : fmt::format("millrace train {} --out {}-best", report.best_recipe, report.out);
}

std::string report_text(const StudyFile& study, const RunReport& report) {
    const Times& times = report.progress.times;
    const auto seconds = std::chrono::nanoseconds(static_cast<std::int64_t>(times.total * 1e9));
    std::string text =
        fmt::format("{}; {} in {} ({:.3g} a second, {}, {})\n", counts_text(report.progress),
                    counted(report.progress.trial_epochs, "trial-epoch"), base::print_duration(seconds),
                    times.total > 0 ? static_cast<double>(report.progress.trial_epochs) / times.total : 0,
                    counted(report.progress.lanes, "lane"), counted(static_cast<std::int64_t>(report.programs), "program"));
    text += fmt::format("bookkeeping {:.1f} %, building programs {:.1f} %, moving trials {:.1f} %\n",
                        share_of(times.bookkeeping(), times), share_of(times.building, times), share_of(times.moving, times));
    if (report.was_stopped) return text + fmt::format("stopped; --resume --out {} goes on", report.out);
    if (report.is_out_of_time) text += fmt::format("the time was up; --resume --out {} goes on\n", report.out);
    if (report.progress.finished) text += finished_text(study, report);
    if (report.finalists.empty()) text += nobody_text(study, report);
    if (!report.finalists.empty())
        text += fmt::format(
            "finalists{}:\n",
            study.replicates > 0 ? fmt::format(", each trained again with {}", counted(study.replicates, "other seed")) : "");
    for (std::size_t i = 0; i < report.finalists.size(); ++i) text += finalist_text(study, report.finalists[i], i + 1);
    text += importance_text(study, report);
    if (!report.best_recipe.empty()) text += fmt::format("best    {}\nagain   {}\n", report.best_recipe, best_command(report));
    if (!report.page.empty()) text += fmt::format("page    {}\n", report.page);
    return text + fmt::format("run     {}", report.out);
}

std::string report_json(const StudyFile& study, const RunReport& report) {
    const Progress& progress = report.progress;
    nlohmann::ordered_json json{{"study", study.name},
                                {"run", report.out},
                                {"stopped", report.was_stopped},
                                {"trials", progress.started},
                                {"complete", progress.complete},
                                {"pruned", progress.pruned},
                                {"paused", progress.paused},
                                {"failed", progress.failed},
                                {"waiting", progress.running},
                                {"trial_epochs", progress.trial_epochs},
                                {"lanes", progress.lanes},
                                {"programs", report.programs},
                                {"seconds", progress.times.total},
                                {"bookkeeping_percent", share_of(progress.times.bookkeeping(), progress.times)},
                                {"building_percent", share_of(progress.times.building, progress.times)},
                                {"moving_percent", share_of(progress.times.moving, progress.times)}};
    const auto summary = [](const Summary& of) {
        return nlohmann::ordered_json{{"mean", of.mean}, {"spread", of.spread}, {"count", of.count}};
    };
    json["finalists"] = nlohmann::ordered_json::array();
    for (const FinalistResult& finalist : report.finalists) {
        nlohmann::ordered_json one{{"trials", finalist.trials}, {"reruns", finalist.reruns}, {"failed", finalist.failed}};
        for (std::size_t i = 0; i < study.space.size(); ++i)
            one["parameters"][study.space.parameters[i].name] = study.space.parameters[i].text(finalist.configuration[i]);
        for (std::size_t i = 0; i < study.objectives.size(); ++i)
            one["objectives"][study.objectives[i].metric] = summary(finalist.objectives[i]);
        for (const auto& [name, of] : finalist.test) one["test"][name] = summary(of);
        json["finalists"].push_back(std::move(one));
    }
    if (progress.finished) json["trained_to_end"] = *progress.finished;
    json["importance"] = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < report.importance.size(); ++i)
        json["importance"][study.space.parameters[i].name] = report.importance[i];
    if (!report.best_recipe.empty()) json["best"] = report.best_recipe;
    if (!report.best_recipe.empty()) json["command"] = best_command(report);
    return base::json_text(json, 1);
}

}  // namespace millrace::sweep
