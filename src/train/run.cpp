#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/log.h"
#include "models/weights.h"
#include "train/console.h"

namespace millrace::train {
namespace {

constexpr std::uint64_t kInFlight = 64;  // enough to hide the host, few enough to stop soon
constexpr std::chrono::microseconds kHoldBack{50};
constexpr std::chrono::seconds kEarlyLook{60};  // into an epoch: whoever waits hours for its end should hear of trouble now

}  // namespace

base::Status restore(Engine& engine, const RunSettings& settings, const RunState& state, const io::LoadedCheckpoint& checkpoint) {
    const EpochSteps& epoch = engine.epoch();
    const auto steps = static_cast<std::uint64_t>(epoch.count());
    const auto refuse = [&](const char* what) {
        return base::Error{fmt::format("{} does not fit this recipe and data set; the checkpoint is of another run", what),
                           checkpoint.folder / "state.json"};
    };
    if (state.steps_per_epoch != steps) return refuse("steps_per_epoch");
    if (static_cast<int>(state.members.size()) != engine.members()) return refuse("the number of members");
    for (const ops::MemberState& member : state.members)
        if (member.step != state.step || member.epoch != state.step / steps ||
            member.position != state.step % steps * static_cast<std::uint64_t>(epoch.step.total()))
            return refuse("the position of a member");
    MILLRACE_TRY(models::load_weights(engine.store(), checkpoint, true, engine.model().attachments()));
    std::vector<ops::MemberState> members = state.members;
    optim::apply(settings.optimizer, members);
    engine.store().write_states(members);
    return write_groups(engine.store(), state);
}

Run::Run(Setup& setup, const base::Recipe& recipe, record::RunDirectory& directory, io::CheckpointStore& checkpoints,
         RunState state, Observer& observer, Telemetry& telemetry, const base::Clock& clock)
    : setup_(setup),
      engine_(*setup.engine),
      recipe_(recipe),
      directory_(directory),
      checkpoints_(checkpoints),
      state_(std::move(state)),
      observer_(observer),
      telemetry_(telemetry),
      clock_(clock),
      steps_per_epoch_(static_cast<std::uint64_t>(engine_.epoch().count())),
      saved_step_(state_.members.empty() ? std::nullopt : std::optional(state_.step)),
      saved_at_(clock.now()),
      began_(clock.now()),
      cpu_began_(cpu_seconds()),
      reader_(engine_.store().ring_rows(), engine_.store().options().ring_capacity, engine_.members()) {}

std::uint64_t Run::total_steps() const {
    const std::uint64_t all = setup_.settings.epochs * steps_per_epoch_;
    return setup_.settings.step_limit == 0 ? all : std::min(all, setup_.settings.step_limit);
}

std::int64_t Run::batches_done() const {
    const EpochSteps& epoch = engine_.epoch();
    const std::int64_t per_step = epoch.step.full;
    const std::int64_t per_epoch = epoch.regular * per_step + epoch.last.full + (epoch.last.tail > 0 ? 1 : 0);
    return static_cast<std::int64_t>(state_.step / steps_per_epoch_) * per_epoch +
           static_cast<std::int64_t>(state_.step % steps_per_epoch_) * per_step;
}

base::Result<RunResult> Run::execute(const std::atomic<int>* stop, const std::atomic<std::uint32_t>* saves) {
    StartReport start;
    start.run = directory_.path().string();
    start.model = setup_.settings.model;
    start.preset = setup_.settings.preset;
    start.make = engine_.model().description();
    start.parameters = engine_.store().trainable_count();
    start.members = engine_.members();
    start.device = setup_.device;
    start.precision = setup_.precision;
    start.data = data_text(setup_.data, setup_.unit);
    start.memory = engine_.memory_text();
    start.steps_per_epoch = steps_per_epoch_;
    start.total_steps = total_steps();
    start.first_step = state_.step;
    start.epochs = setup_.settings.epochs;
    start.resumed = state_.step > 0;
    observer_.on_start(start);
    (void)telemetry_.events().append("memory", start.memory,
                                     {{"planned_bytes", engine_.memory_needs().total()},
                                      {"activation_bytes", engine_.memory_needs().activations},
                                      {"used_bytes", engine_.memory_used()},
                                      {"micro_batch", std::int64_t{engine_.micro_batch()}}});

    RunResult result;
    result.run = start.run;
    result.parameters = start.parameters;
    result.best_metric = setup_.settings.checkpoint.best_metric;
    result.classifies = engine_.model().classifies();
    result.was_complete = state_.step >= total_steps();
    metrics_.emplace(reader_, directory_.metrics(), observer_, telemetry_, clock_, metrics_plan(), state_.epoch_sums);
    begin_epoch();
    MILLRACE_TRY(train_until(stop, saves));
    metrics_->pause();
    metrics_->close_interval();
    const bool complete = state_.step >= total_steps();
    if (!complete && saved_step_ != state_.step) MILLRACE_TRY(save(false, io::CheckpointKind::kStep, IfUnsaved::fails));
    // A checkpoint of this very step may be of a longer run that was stopped here: then the epoch is still open.
    const bool closed = saved_step_ == state_.step && state_.complete;
    if (complete && state_.step % steps_per_epoch_ != 0 && !closed) MILLRACE_TRY(end_epoch(false));

    const MetricsThread::Totals totals = metrics_->totals();
    result.signal = complete ? 0 : stop->load();
    result.step = state_.step;
    result.epochs = static_cast<std::uint32_t>(state_.step / steps_per_epoch_);
    result.seconds = totals.seconds;
    result.samples_per_second = totals.samples_per_second;
    result.steps_per_second = totals.steps_per_second;
    for (const ops::MemberState& member : engine_.store().read_states()) result.dropped += member.skipped;
    if (complete && result.dropped == result.step * static_cast<std::uint64_t>(engine_.members()))
        return base::Error{
            fmt::format(
                "all {} steps were dropped because a value was not finite, so nothing was learned; try a smaller optim.lr, or "
                "--set train.debug_nonfinite=true, which names the operator",
                result.step),
            directory_.path().string(), 1};
    if (complete) MILLRACE_TRY(test(result, stop));
    metrics_.reset();
    return result;
}

MetricsPlan Run::metrics_plan() const {
    MetricsPlan plan{setup_.settings.log_interval, steps_per_epoch_, total_steps(), setup_.settings.epochs};
    plan.classifies = engine_.model().classifies();
    plan.on_gpu = engine_.backend().kind() == ops::DeviceKind::cuda;
    const EpochSteps& epoch = engine_.epoch();
    const std::int64_t rows = (epoch.regular > 0 ? epoch.step : epoch.last).total();
    // How much of what hangs on a condition was done is known on the device alone, and asking would make steps wait.
    if (const tape::Flops flops = engine_.flops(0); flops.conditional == 0)
        plan.flops_per_sample = static_cast<double>(flops.always) / static_cast<double>(rows * engine_.members());
    plan.peak_flops = engine_.peak_flops();
    return plan;
}

base::Status Run::train_until(const std::atomic<int>* stop, const std::atomic<std::uint32_t>* saves) {
    while (state_.step < total_steps() && (stop == nullptr || stop->load(std::memory_order_relaxed) == 0)) {
        MILLRACE_TRY(step());
        if (state_.step % steps_per_epoch_ == 0) MILLRACE_TRY(end_epoch(true));
        MILLRACE_TRY(save_between_epochs(saves));
    }
    return settle();
}

base::Status Run::step() {
    const std::uint64_t index = state_.step % steps_per_epoch_;
    MILLRACE_TRY(await_rows());
    if (measurement_due() != Measurement::none) return measured_step(index);
    state_.step += 1;
    launched_ += 1;
    if (!setup_.settings.debug_nonfinite) {
        engine_.launch_step(index);
        return hold_back();
    }
    if (const auto found = engine_.checked_step(index))
        return base::Error{fmt::format("step {}: {}", state_.step, found->text()), {}, 1};
    return hold_back();
}

/// Every step, whatever the source: two readings of the clock.
base::Status Run::await_rows() {
    constexpr std::uint32_t kMostNotes = 100;  // per epoch; the rest are counted
    const auto begin = clock_.now();
    MILLRACE_TRY(engine_.await_rows(state_.step));
    const auto end = clock_.now(), wait = end - begin;
    if (!looked_early_ && end - epoch_began_ > kEarlyLook) {
        looked_early_ = true;
        warn(metrics_->epoch_pace(0), static_cast<std::uint32_t>(state_.step / steps_per_epoch_) + 1);
    }
    if (!metrics_->loader_waits().add(wait) || spikes_noted_++ >= kMostNotes) return base::ok();
    const double milliseconds = std::chrono::duration<double, std::milli>(wait).count();
    const std::string machine = telemetry_.newest_text();
    MILLRACE_LOG(performance, "step {} waited {:.0f} ms for its data; {}", state_.step + 1, milliseconds, machine);
    (void)telemetry_.events().append(
        "loader_spike", fmt::format("step {} waited {:.0f} ms for its data; {}", state_.step + 1, milliseconds, machine),
        {{"step", static_cast<std::int64_t>(state_.step + 1)}, {"wait_ms", milliseconds}});
    return base::ok();
}

/// The second step, so that short runs have one, and then every so often; operators one step later.
Run::Measurement Run::measurement_due() const {
    const TelemetrySettings& telemetry = setup_.settings.telemetry;
    if (!telemetry.components || setup_.settings.debug_nonfinite) return Measurement::none;
    const std::uint64_t number = state_.step + 1, since = number % telemetry.components_every;
    if (number == 2 || (since == 0 && number > 2)) return Measurement::components;
    if (telemetry.operators && (number == 3 || (since == 1 && number > 3))) return Measurement::operators;
    return Measurement::none;
}

/// One step by an instrumented program, with nothing else under way. Its time is stated and counts in no speed.
base::Status Run::measured_step(std::uint64_t index) {
    const bool operators = measurement_due() == Measurement::operators;
    MILLRACE_TRY(settle());
    metrics_->pause();
    state_.step += 1;
    launched_ += 1;
    metrics_->exclude(launched_);
    if (operators) {
        MILLRACE_LET(times, engine_.operator_step(index));
        MILLRACE_LOG(profiling, "{}", operators_text(times, state_.step));
    } else {
        MILLRACE_LET(times, engine_.component_step(index));
        MILLRACE_LOG(performance, "{}", components_text(times, state_.step));
        const auto epoch = static_cast<std::uint32_t>((state_.step - 1) / steps_per_epoch_) + 1;
        metrics_->append(record::RowKind::kComponents,
                         components_row(times, engine_.model().components(), state_.step, epoch, row_time()));
    }
    MILLRACE_TRY(settle());
    metrics_->resume();
    return base::ok();
}

/// Waits while too many steps are in flight or the ring's reader lags; looks at host memory alone.
base::Status Run::hold_back() {
    const auto must_wait = [this] {
        return (launched_ > kInFlight && !reader_.arrived(launched_ - kInFlight)) ||
               launched_ - reader_.consumed() + kInFlight >= reader_.capacity();
    };
    while (must_wait()) {
        MILLRACE_TRY(engine_.backend().check());
        std::this_thread::sleep_for(kHoldBack);
    }
    return base::ok();
}

/// Everything launched has run and has been summed.
base::Status Run::settle() {
    engine_.backend().synchronize();
    MILLRACE_TRY(engine_.backend().check());
    metrics_->wait_for(launched_);
    return base::ok();
}

base::Status Run::end_epoch(bool whole) {
    MILLRACE_TRY(settle());
    metrics_->pause();
    metrics_->close_interval();  // what a checkpoint's offset covers is then complete
    const MetricsThread::Totals totals = metrics_->totals();
    const StepSums sums = whole ? metrics_->take_epoch() : metrics_->epoch_sums();
    EpochReport report;
    report.epoch = static_cast<std::uint32_t>((state_.step - 1) / steps_per_epoch_) + 1;
    report.epochs = setup_.settings.epochs;
    report.step = state_.step;
    for (const MemberSums& member : sums.members) report.training.push_back({member.mean_loss(), member.accuracy(), {}});
    report.seconds = totals.seconds - epoch_seconds_;
    report.samples_per_second = report.seconds > 0 ? (totals.samples - epoch_samples_) / report.seconds : 0;
    epoch_seconds_ = totals.seconds;
    epoch_samples_ = totals.samples;
    report.pace = metrics_->epoch_pace(report.samples_per_second);
    if (!report.pace.machine.line.gpus.empty()) {
        gpu_utilization_ = report.pace.machine.line.gpus.front().utilization_percent;
        sm_active_ = report.pace.machine.sm_active_percent;
    }
    MILLRACE_LET(validation, engine_.evaluate(data::Part::validation));
    report.validation = std::move(validation);
    report.dropped = sums.dropped();
    report.classifies = engine_.model().classifies();
    const BestSoFar best_before = state_.best;
    const std::vector<Score> scores_before = best_scores_;
    report.best = note_best(report);
    metrics_->append(record::RowKind::kEpoch, epoch_row(report, row_time()));
    const bool last = state_.step >= total_steps(), due = report.epoch % setup_.settings.checkpoint.every_epochs == 0;
    if (report.best || due || last)
        MILLRACE_TRY(save(report.best, io::CheckpointKind::kStep, last ? IfUnsaved::fails : IfUnsaved::goes_on));
    if (report.best && saved_step_ != state_.step) {  // the best weights are the best that are on the disk
        state_.best = best_before;
        best_scores_ = scores_before;
        report.best = false;
    }
    observer_.on_epoch(report);
    if (report.dropped > 0)
        MILLRACE_LOG(warn,
                     "epoch {}: {} of {} steps were dropped because a value was not finite; train.debug_nonfinite=true names the "
                     "operator that made it",
                     report.epoch, report.dropped, sums.steps() * static_cast<std::uint64_t>(engine_.members()));
    warn(report.pace, report.epoch);
    begin_epoch();
    metrics_->resume();
    return base::ok();
}

void Run::begin_epoch() {
    gate_.begin_epoch();
    spikes_noted_ = 0;
    looked_early_ = false;
    epoch_began_ = clock_.now();
    metrics_->begin_epoch();
}

void Run::warn(const PaceReport& pace, std::uint32_t epoch) {
    TrainingEvidence evidence;
    evidence.machine = pace.machine;
    evidence.loader = pace.loader;
    evidence.step_ms = pace.step_ms_p50.value_or(0);
    evidence.on_gpu = engine_.backend().kind() == ops::DeviceKind::cuda;
    evidence.members = engine_.members();
    evidence.batch = setup_.settings.batch;
    for (const Warning& warning : gate_.admit(judge(evidence))) {
        MILLRACE_LOG(warn, "epoch {}: {}", epoch, warning.text);
        (void)telemetry_.events().append("warning", warning.text, {{"cause", warning.cause}, {"epoch", std::int64_t{epoch}}});
    }
}

/// The best member decides, one whose loss is not finite never; without validation data the newest weights are the best known.
bool Run::note_best(const EpochReport& report) {
    BestSoFar now{true, -std::numeric_limits<double>::infinity(), report.epoch, report.step, {}, {}};
    for (const Score& score : report.validation) {
        const double value = merit(score, setup_.settings.checkpoint.best_metric);
        if (std::isfinite(score.loss) && value > now.value) now.value = value;
        now.losses.push_back(score.loss);
        now.accuracies.push_back(score.accuracy);
    }
    if (report.validation.empty()) now.value = 0;
    if (!std::isfinite(now.value)) return false;
    if (state_.best.any && !report.validation.empty() && !(now.value > state_.best.value)) return false;
    state_.best = std::move(now);
    best_scores_ = report.validation;
    return true;
}

RowTime Run::row_time() {
    return {metrics_->totals().seconds, std::chrono::duration<double>(clock_.wall().time_since_epoch()).count()};
}

/// The best weights on the test part; without one, the scores on what was set aside to select by. None after a stop.
base::Result<std::vector<Score>> Run::test_scores(RunResult& result, const std::atomic<int>* stop) {
    if (stop != nullptr && stop->load() != 0) return std::vector<Score>{};
    MILLRACE_LET(best, io::load_checkpoint(directory_.checkpoints() / "best", io::LoadParts::kModelOnly));
    MILLRACE_TRY(models::load_weights(engine_.store(), best, false, engine_.model().attachments()));
    result.tested = engine_.source().samples(data::Part::test) > 0;
    const data::Part part = result.tested ? data::Part::test : data::Part::validation;
    result.held = engine_.source().samples(part);
    if (!result.tested && !best_scores_.empty()) return best_scores_;
    return engine_.evaluate(part, stop);
}

base::Status Run::test(RunResult& result, const std::atomic<int>* stop) {
    if (!state_.best.any)
        return base::Error{
            "the validation loss was never finite, so there are no best weights to test; the newest are in checkpoints/last. Try "
            "a "
            "smaller optim.lr, or --set train.debug_nonfinite=true, which names the operator",
            directory_.path().string(), 1};
    MILLRACE_LET(scores, test_scores(result, stop));
    if (scores.empty() && stop != nullptr) result.signal = stop->load();
    if (result.signal != 0) return base::ok();
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < static_cast<std::size_t>(engine_.members()); ++k) {
        const bool validated = k < state_.best.accuracies.size();
        MemberResult member{validated ? state_.best.accuracies[k] : nothing,
                            validated ? state_.best.losses[k] : nothing,
                            state_.best.epoch,
                            nothing,
                            nothing,
                            {}};
        if (result.tested) {
            member.test_accuracy = scores[k].accuracy;
            member.test_loss = scores[k].loss;
        }
        if (k < scores.size()) member.more = scores[k].more;
        result.members.push_back(std::move(member));
    }
    if (result.tested) metrics_->append(record::RowKind::kTest, test_row(result, row_time()));
    return base::ok();
}

}  // namespace millrace::train
