#include "train/console.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>

#include "base/log.h"
#include "base/units.h"

namespace millrace::train {
namespace {

std::string number(double value, const char* format) {
    return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

std::string per_second(double value) {
    if (!(value > 0)) return "-";
    return value < 10 ? fmt::format("{:.2f}", value) : base::print_count(static_cast<std::uint64_t>(std::llround(value)));
}

std::string flops_text(double per_second) {
    return per_second < 1e12 ? fmt::format("{:.3g} GFLOP/s", per_second / 1e9) : fmt::format("{:.3g} TFLOP/s", per_second / 1e12);
}

/// "1 epoch", "2 epochs"
std::string counted(std::uint64_t count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string seconds_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
    if (seconds >= 10) return base::print_duration(std::chrono::seconds(std::llround(seconds)));
    return base::print_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

/// Time left in whole seconds: a guess needs no more.
std::string left_text(double seconds) {
    return seconds >= 0 && seconds < 59.5 ? fmt::format("{:.0f}s", seconds) : seconds_text(seconds);
}

/// What a model without classes is judged by.
std::string surface_text(const Score& score) {
    return fmt::format("loss {}{}{}", loss_text(score.loss), score.more.summary.empty() ? "" : " ", score.more.summary);
}

/// One member as it is, several as the best and the mean.
std::string score_text(const char* name, const std::vector<Score>& scores, bool classifies) {
    if (scores.empty()) return {};
    if (!classifies) return fmt::format("  {} {}", name, surface_text(scores.front()));
    if (scores.size() == 1)
        return fmt::format("  {} loss {} accuracy {} %{}{}", name, loss_text(scores[0].loss),
                           number(100 * scores[0].accuracy, "{:.2f}"), scores[0].more.summary.empty() ? "" : " ",
                           scores[0].more.summary);
    double best = 0, accuracy = 0, loss = 0;
    for (const Score& score : scores) {
        best = std::max(best, score.accuracy);
        accuracy += score.accuracy / static_cast<double>(scores.size());
        loss += score.loss / static_cast<double>(scores.size());
    }
    return fmt::format("  {} loss {} accuracy {} % (best member {} %)", name, loss_text(loss), number(100 * accuracy, "{:.2f}"),
                       number(100 * best, "{:.2f}"));
}

}  // namespace

std::string loss_text(double loss) { return number(loss, std::abs(loss) < 1e4 ? "{:.4f}" : "{:.4g}"); }

std::string progress_text(const IntervalReport& report, Detail detail) {
    std::string text = fmt::format("epoch {}/{}  step {}/{}  loss {}", report.epoch, report.epochs, report.step,
                                   report.total_steps, loss_text(report.loss));
    if (detail == Detail::pace)
        text += fmt::format("  {} samples/s (average {})  {} steps/s", per_second(report.recent_samples),
                            per_second(report.average_samples), per_second(report.recent_steps));
    text += fmt::format("  {} left", left_text(report.seconds_left));
    if (detail == Detail::pace && report.pace.machine.samples > 0) text += "  " + record::machine_line(report.pace.machine.line);
    return text;
}

std::string machine_text(const PaceReport& pace) {
    if (pace.machine.samples == 0) return {};
    std::string text = record::machine_line(pace.machine.line);
    if (pace.machine.sm_active_percent) text += fmt::format(" | chip busy {:.0f}%", *pace.machine.sm_active_percent);
    if (pace.machine.power_watts) text += fmt::format(" | {:.0f} W", *pace.machine.power_watts);
    return text;
}

std::string pace_text(const PaceReport& pace) {
    std::vector<std::string> parts;
    if (pace.step_ms_p50) parts.push_back(fmt::format("step {:.3f} ms (p99 {:.3f})", *pace.step_ms_p50, *pace.step_ms_p99));
    if (pace.flops_per_second)
        parts.push_back(
            fmt::format("{}{}", flops_text(*pace.flops_per_second),
                        pace.flops_share_percent ? fmt::format(", {:.1f} % of peak", *pace.flops_share_percent) : ""));
    if (pace.joules_per_sample) parts.push_back(fmt::format("{:.3g} mJ/sample", 1e3 * *pace.joules_per_sample));
    const record::Statistics& wait = pace.loader.wait_ms;
    if (wait.count > 0)
        parts.push_back(
            fmt::format("waited for data {:.3f} ms (median {:.3f}, worst {:.3f}{})", wait.mean, wait.median, wait.maximum,
                        pace.loader.spikes > 0 ? fmt::format(", {} above {} ms", pace.loader.spikes, kLoaderSpike.count()) : ""));
    return fmt::format("{}", fmt::join(parts, " | "));
}

std::string components_text(const tape::PhaseTimes& times, std::uint64_t step) {
    std::string text = fmt::format("step {}:", step);
    for (int i = 0; i < tape::kPhaseCount; ++i) {
        const double milliseconds = times.milliseconds[static_cast<std::size_t>(i)];
        text += fmt::format("{} {} {:.3f} ms ({:.0f} %)", i > 0 ? "," : "", tape::kPhaseNames[static_cast<std::size_t>(i)],
                            milliseconds, times.total > 0 ? 100 * milliseconds / times.total : 0);
    }
    return text + fmt::format("; {:.3f} ms with marks between them, counted in no speed", times.total);
}

std::string operators_text(const std::vector<tape::KernelTime>& times, std::uint64_t step) {
    struct Sum {
        double microseconds = 0;
        int count = 0;
    };
    std::map<std::string_view, Sum> by_text;
    double total = 0;
    for (const tape::KernelTime& time : times) {
        by_text[time.text].microseconds += time.microseconds;
        by_text[time.text].count += 1;
        total += time.microseconds;
    }
    std::vector<std::pair<std::string_view, Sum>> lines(by_text.begin(), by_text.end());
    std::ranges::stable_sort(lines, std::greater(), [](const auto& line) { return line.second.microseconds; });
    std::string text = fmt::format("step {}: {} kernels, {:.1f} us one after the other, run apart from the captured step", step,
                                   times.size(), total);
    for (const auto& [name, sum] : lines)
        text += fmt::format("\n{:9.1f} us {:5.1f} %  {}{}", sum.microseconds, total > 0 ? 100 * sum.microseconds / total : 0,
                            name, sum.count > 1 ? fmt::format(" x {}", sum.count) : "");
    return text;
}

std::string epoch_text(const EpochReport& report, Detail detail) {
    std::string text = fmt::format("epoch {}/{}", report.epoch, report.epochs);
    if (!report.domain.empty()) text += fmt::format(" ({})", report.domain);
    text +=
        score_text("train", report.training, report.classifies) + score_text("validation", report.validation, report.classifies);
    if (report.best) text += "  new best";
    text += "  " + seconds_text(report.seconds);
    if (detail == Detail::pace) text += fmt::format("  {} samples/s", per_second(report.samples_per_second));
    for (const Score& score : report.validation)
        for (const std::string& note : score.more.notes) text += "\n    " + note;
    if (detail == Detail::losses) return text;
    for (const std::string& line : {machine_text(report.pace), pace_text(report.pace)})
        if (!line.empty()) text += "\n    " + line;
    return text;
}

std::string start_text(const StartReport& report) {
    std::string text = fmt::format("{} {}: {} parameters{}\n", report.model, report.preset,
                                   base::print_count(static_cast<std::uint64_t>(report.parameters)),
                                   report.members > 1 ? fmt::format(", {} members", report.members) : "");
    if (!report.make.empty()) text += fmt::format("model   {}\n", report.make);
    text += fmt::format("data    {}\n", report.data);
    if (!report.ranks.empty()) text += fmt::format("ranks   {}\n", report.ranks);
    if (!report.loading.empty()) text += fmt::format("loading {}\n", report.loading);
    text += fmt::format("device  {}, {}\n", report.device, report.precision);
    text += fmt::format("memory  {}\n", report.memory);
    text += fmt::format("run     {}{}\n", report.run,
                        report.resumed ? fmt::format(" (continued after step {})", report.first_step) : "");
    const std::string whole = fmt::format("{} of {}", counted(report.epochs, "epoch"), counted(report.steps_per_epoch, "step"));
    if (report.resumed && report.first_step >= report.total_steps)
        return text + fmt::format("nothing left of {}", counted(report.total_steps, "step"));
    if (report.total_steps < report.epochs * report.steps_per_epoch)
        return text + fmt::format("{}, the beginning of {}", counted(report.total_steps, "step"), whole);
    return text + whole;
}

namespace {

/// The best weights of a model without classes, on the test part or else on what they were selected by.
std::string best_text(const RunResult& result, const MemberResult& best) {
    if (result.held == 0) return "no data was set aside, so nothing was scored\n";
    std::string text = fmt::format("best weights (epoch {}{}) on {} samples {}: {}\n", best.best_epoch,
                                   result.best_metric == "validation_loss" ? "" : ", by " + result.best_metric, result.held,
                                   result.tested ? "of the test part" : "set aside",
                                   surface_text({result.tested ? best.test_loss : best.validation_loss, 0, best.more}));
    for (const std::string& note : best.more.notes) text += note + "\n";
    return text;
}

}  // namespace

std::string finish_text(const RunResult& result) {
    if (result.stopped)
        return fmt::format("stopped{} after step {}; saved. --resume --out {} continues",
                           result.signal != 0 ? " by a signal" : "", result.step, result.run);
    const MemberResult& best = result.members.at(best_member(result));
    std::string text =
        result.ended_early.empty() ? "" : fmt::format("ended after epoch {}: {}\n", result.epochs, result.ended_early);
    text += result.was_complete ? "nothing left to train: these are the scores of the weights it has\n" : "";
    if (!result.classifies)
        text += best_text(result, best);
    else if (std::isfinite(best.validation_accuracy))
        text +=
            result.best_metric == "validation_accuracy"
                ? fmt::format("best validation accuracy {:.2f} % (epoch {})\n", 100 * best.validation_accuracy, best.best_epoch)
                : fmt::format("best weights (epoch {}, by {}): validation accuracy {:.2f} %, loss {}\n", best.best_epoch,
                              result.best_metric, 100 * best.validation_accuracy, loss_text(best.validation_loss));
    if (result.classifies && result.tested)
        text += fmt::format("test accuracy {:.2f} %, loss {}{}{}\n", 100 * best.test_accuracy, loss_text(best.test_loss),
                            best.more.summary.empty() ? "" : ", ", best.more.summary);
    if (result.members.size() > 1 && result.classifies && result.tested) {
        double mean = 0;
        for (const MemberResult& member : result.members)
            mean += member.test_accuracy / static_cast<double>(result.members.size());
        text += fmt::format("that is member {} of {}, chosen by validation; mean test accuracy {:.2f} %\n", best_member(result),
                            result.members.size(), 100 * mean);
    }
    if (result.seconds > 0 && !result.was_complete)
        text += fmt::format("trained {} ({} samples/s, {} steps/s)\n", seconds_text(result.seconds),
                            per_second(result.samples_per_second), per_second(result.steps_per_second));
    return text + result.notes + fmt::format("run {}", result.run);
}

Console::Console(ConsoleOptions options, const base::Clock& clock)
    : options_(options), clock_(clock), line_(options.live), last_line_(clock.now()) {}

void Console::print(const std::string& lines) {
    line_.draw({});
    if (reader_left_) return;
    // fmt::print would throw; the stream remembers any other failure than a reader that left, which is none of ours.
    std::fputs((lines + "\n").c_str(), options_.out);
    if (std::fflush(options_.out) == 0 || errno != EPIPE) return;
    reader_left_ = true;
    std::clearerr(options_.out);
}

void Console::on_interval(IntervalReport& report) {
    if (options_.quiet) return;
    if (options_.live) return line_.draw(progress_text(report, options_.detail));
    if (clock_.now() - last_line_ < options_.plain_interval) return;
    last_line_ = clock_.now();
    print(progress_text(report, options_.detail));
}

}  // namespace millrace::train
