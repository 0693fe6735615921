#include "train/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "train/console.h"

namespace millrace::train {

using record::RowKind;

void RunLog::on_start(const StartReport& report) {
    Engine& engine = loop_.engine();
    (void)telemetry_.events().append("memory", report.memory,
                                     {{"planned_bytes", engine.memory_needs().total()},
                                      {"planned_peak_bytes", engine.memory_needs().peak()},
                                      {"activation_bytes", engine.memory_needs().activations},
                                      {"used_bytes", engine.memory_used()},
                                      {"micro_batch", std::int64_t{engine.micro_batch()}}});
}

void RunLog::on_timed_step(const TimedStep& timed) {
    if (!timed.phases) {
        MILLRACE_LOG(profiling, "{}", operators_text(timed.kernels, timed.step));
        return;
    }
    MILLRACE_LOG(performance, "{}", components_text(*timed.phases, timed.step));
    append(RowKind::kComponents, components_row(*timed.phases, loop_.engine().model().components(), timed.step, timed.epoch,
                                                now(timed.training_seconds)));
}

RowTime RunLog::now(double training_seconds) const {
    return {training_seconds, std::chrono::duration<double>(clock_.wall().time_since_epoch()).count()};
}

void RunLog::append(RowKind kind, const Row& row) {
    telemetry_.post(kind, row);
    const std::lock_guard lock(mutex_);
    note(stream_.append(row));
}

void RunLog::note(const base::Status& written) {
    if (!written.ok() && !behind_)
        MILLRACE_LOG(warn, "{}; training goes on, the rows are kept and written once that works again", written.error().text());
    if (written.ok() && behind_)
        MILLRACE_LOG(info, "metrics.jsonl is being written again{}",
                     stream_.lost() > 0 ? fmt::format(", {} rows were lost", stream_.lost()) : "");
    behind_ = !written.ok();
}

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// More than thousandths are noise in times and speeds.
double rounded(double value) { return std::round(value * 1000) / 1000; }

void add_sums(Row& row, const std::string& prefix, const MemberSums& sums, const IntervalReport& report) {
    row.emplace_back(prefix + "loss", sums.mean_loss());
    row.emplace_back(prefix + "loss_min", sums.steps > 0 ? sums.loss_min : kNothing);
    row.emplace_back(prefix + "loss_max", sums.steps > 0 ? sums.loss_max : kNothing);
    if (report.classifies) row.emplace_back(prefix + "accuracy", sums.accuracy());
    row.emplace_back(prefix + "penalty", sums.mean_penalty());
    row.emplace_back(prefix + "grad_norm", sums.mean_grad_norm());
    row.emplace_back(prefix + "grad_norm_max", sums.steps > 0 ? sums.grad_norm_max : kNothing);
    row.emplace_back(prefix + "lr", static_cast<double>(sums.lr));
    row.emplace_back(prefix + "dropped", static_cast<std::int64_t>(sums.dropped));
    if (report.scales_loss) row.emplace_back(prefix + "loss_scale", static_cast<double>(sums.loss_scale));
}

/// All members as one: what a plot of the run shows.
MemberSums merged(const StepSums& sums) {
    MemberSums all;
    for (const MemberSums& member : sums.members) {
        all.steps += member.steps;
        all.dropped += member.dropped;
        all.rows += member.rows;
        all.correct += member.correct;
        all.loss += member.loss;
        all.penalty += member.penalty;
        all.grad_norm += member.grad_norm;
        all.grad_norm_max = std::max(all.grad_norm_max, member.grad_norm_max);
        all.loss_min = std::min(all.loss_min, member.loss_min);
        all.loss_max = std::max(all.loss_max, member.loss_max);
    }
    all.lr = sums.members.front().lr;
    all.loss_scale = sums.members.front().loss_scale;
    return all;
}

Row row_of(const char* kind, std::uint64_t step, std::uint32_t epoch, RowTime when) {
    return {{"kind", std::string(kind)},
            {"time", rounded(when.time)},
            {"seconds", rounded(when.seconds)},
            {"step", static_cast<std::int64_t>(step)},
            {"epoch", std::int64_t{epoch}}};
}

void add_pace(Row& row, const PaceReport& pace) {
    const auto add = [&row](const char* key, const std::optional<double>& value) {
        if (value) row.emplace_back(key, *value);
    };
    add("step_ms_p50", pace.step_ms_p50);
    add("step_ms_p99", pace.step_ms_p99);
    if (pace.loader.wait_ms.count > 0) {
        row.emplace_back("loader_wait_ms_mean", pace.loader.wait_ms.mean);
        row.emplace_back("loader_wait_ms_median", pace.loader.wait_ms.median);
        row.emplace_back("loader_wait_ms_max", pace.loader.wait_ms.maximum);
        row.emplace_back("loader_spikes", static_cast<std::int64_t>(pace.loader.spikes));
    }
    add("flops_per_second", pace.flops_per_second);
    add("flops_share_percent", pace.flops_share_percent);
    add("joules_per_sample", pace.joules_per_sample);
    const record::MachineLineValues& line = pace.machine.line;
    if (!line.gpus.empty()) {
        add("gpu_utilization_percent", line.gpus.front().utilization_percent);
        add("vram_used_bytes", line.gpus.front().memory_used_bytes);
        add("vram_total_bytes", line.gpus.front().memory_total_bytes);
    }
    add("cpu_utilization_percent", line.cpu_percent);
    add("ram_used_bytes", line.ram_used_bytes);
    add("ram_total_bytes", line.ram_total_bytes);
}

std::string member_prefix(std::size_t k) { return fmt::format("member_{:03}/", k); }

double mean_of(const std::vector<Score>& scores, double Score::*field) {
    double sum = 0;
    for (const Score& score : scores) sum += score.*field;
    return sum / static_cast<double>(scores.size());
}

/// Means over the members of each figure, then their own.
void add_figures(Row& row, const std::vector<Score>& scores) {
    const std::vector<models::Figure>& first = scores.front().more.figures;
    for (std::size_t i = 0; i < first.size(); ++i) {
        double sum = 0;
        for (const Score& score : scores) sum += score.more.figures[i].value;
        row.emplace_back(first[i].name, sum / static_cast<double>(scores.size()));
    }
    if (scores.size() == 1) return;
    for (std::size_t k = 0; k < scores.size(); ++k)
        for (const models::Figure& figure : scores[k].more.figures)
            row.emplace_back(member_prefix(k) + figure.name, figure.value);
}

void add_scores(Row& row, const std::string& name, const std::vector<Score>& scores, bool classifies) {
    if (scores.empty()) return;
    row.emplace_back(name + "_loss", mean_of(scores, &Score::loss));
    if (classifies) row.emplace_back(name + "_accuracy", mean_of(scores, &Score::accuracy));
    for (std::size_t k = 0; k < scores.size() && scores.size() > 1; ++k) {
        row.emplace_back(member_prefix(k) + name + "_loss", scores[k].loss);
        if (classifies) row.emplace_back(member_prefix(k) + name + "_accuracy", scores[k].accuracy);
    }
    add_figures(row, scores);
}

}  // namespace

Row interval_row(const IntervalReport& report, const StepSums& sums, RowTime when) {
    Row row = row_of("interval", report.step, report.epoch, when);
    row.emplace_back("steps", static_cast<std::int64_t>(sums.steps()));
    add_sums(row, "", merged(sums), report);
    row.emplace_back("samples_per_second", rounded(report.recent_samples));
    row.emplace_back("steps_per_second", rounded(report.recent_steps));
    add_pace(row, report.pace);
    if (sums.members.size() > 1)
        for (std::size_t k = 0; k < sums.members.size(); ++k) add_sums(row, member_prefix(k), sums.members[k], report);
    return row;
}

Row epoch_row(const EpochReport& report, RowTime when) {
    Row row = row_of("epoch", report.step, report.epoch, when);
    add_scores(row, "train", report.training, report.classifies);
    add_scores(row, "validation", report.validation, report.classifies);
    row.emplace_back("epoch_seconds", rounded(report.seconds));
    row.emplace_back("samples_per_second", rounded(report.samples_per_second));
    row.emplace_back("dropped", static_cast<std::int64_t>(report.dropped));
    row.emplace_back("best", report.best);
    if (report.loader_bytes) row.emplace_back("loader_bytes", static_cast<std::int64_t>(*report.loader_bytes));
    if (report.mix_deviation) row.emplace_back("mix_deviation", *report.mix_deviation);
    add_pace(row, report.pace);
    return row;
}

Row components_row(const tape::PhaseTimes& times, const std::vector<models::Component>& components, std::uint64_t step,
                   std::uint32_t epoch, RowTime when) {
    Row row = row_of("components", step, epoch, when);
    for (int i = 0; i < tape::kPhaseCount; ++i)
        row.emplace_back(fmt::format("component/{}_ms", tape::kPhaseNames[static_cast<std::size_t>(i)]),
                         times.milliseconds[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < components.size(); ++i)
        row.emplace_back(fmt::format("component/{}_ms", components[i].name), times.components[i]);
    row.emplace_back("component/step_ms", times.total);
    return row;
}

Row test_row(const RunResult& result, RowTime when) {
    Row row = row_of("test", result.step, result.epochs, when);
    const MemberResult& best = result.members.at(best_member(result));
    row.emplace_back("test_loss", best.test_loss);
    row.emplace_back("test_accuracy", best.test_accuracy);
    row.emplace_back("validation_accuracy", best.validation_accuracy);
    row.emplace_back("best_epoch", std::int64_t{best.best_epoch});
    if (result.members.size() == 1) return row;
    for (std::size_t k = 0; k < result.members.size(); ++k) {
        row.emplace_back(member_prefix(k) + "test_loss", result.members[k].test_loss);
        row.emplace_back(member_prefix(k) + "test_accuracy", result.members[k].test_accuracy);
        row.emplace_back(member_prefix(k) + "best_epoch", std::int64_t{result.members[k].best_epoch});
    }
    return row;
}

}  // namespace millrace::train
