#include "train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/log.h"
#include "train/metrics_reader.h"

namespace millrace::train {
namespace {

std::uint64_t steps_of(const RunSettings& settings, std::uint64_t per_epoch) {
    const std::uint64_t all = settings.epochs * per_epoch;
    return settings.step_limit == 0 ? all : std::min(all, settings.step_limit);
}

}  // namespace

Loop::Loop(Setup& setup, const RunState& state, std::string run, const std::atomic<int>* stop, const base::Clock& clock,
           Ranks& ranks)
    : setup_(setup),
      run_(std::move(run)),
      stop_(stop),
      clock_(clock),
      ranks_(ranks),
      met_step_(state.step),
      steps_per_epoch_(static_cast<std::uint64_t>(setup.engine->epoch().count())),
      total_steps_(steps_of(setup.settings, steps_per_epoch_)),
      step_(state.step),
      was_closed_(state.complete),
      first_sums_(state.epoch_sums),
      reader_(engine().store().ring_rows(), engine().store().options().ring_capacity, engine().members()) {}

bool Loop::stop_requested() {
    if (ranks_.several()) return agreed_stop_ != 0 || agreed_.ends != 0;
    return (stop_ != nullptr && stop_->load(std::memory_order_relaxed) != 0) ||
           std::ranges::any_of(listeners_, &Listener::stop_requested);
}

base::Result<RunResult> Loop::run() {
    const StartReport start = start_report();
    for (Listener* listener : listeners_) {
        listener->clear_stop();
        listener->on_start(start);
    }
    MetricsThread metrics(reader_, listeners_, clock_, metrics_plan(), first_sums_);
    metrics_ = &metrics;
    RunResult result;
    result.was_complete = complete();
    begin_epoch();
    const std::uint64_t messages_before = ranks_.world().messages();
    while (!complete()) {
        if (ranks_.several() && step_ >= agreed_.next) MILLRACE_TRY(meet());
        if (stop_requested()) break;
        for (Listener* listener : listeners_) MILLRACE_TRY(listener->on_step_begin(step_));
        MILLRACE_TRY(await_rows());
        MILLRACE_TRY(launch());
        ranks_.watchdog().at_step(static_cast<std::int64_t>(step_));
        if (ranks_.several()) MILLRACE_TRY(engine().backend().check());
        if (step_ % steps_per_epoch_ == 0) MILLRACE_TRY(end_epoch(true));
        for (Listener* listener : listeners_) MILLRACE_TRY(listener->on_step(step_));
    }
    // A checkpoint of this very step may be of a longer run that was stopped here: then the epoch is still open.
    const bool closed = launched_ == 0 && was_closed_;
    if (complete() && step_ % steps_per_epoch_ != 0 && !closed) MILLRACE_TRY(end_epoch(false));
    MILLRACE_TRY(pause());

    if (ranks_.several() && ranks_.leads())
        MILLRACE_LOG(performance, "{} messages of ranks for {} steps", ranks_.world().messages() - messages_before, launched_);
    const MetricsThread::Totals totals = metrics.totals();
    result.run = run_;
    result.stopped = !complete();
    result.ended_early = ended_;
    result.signal = result.stopped && stop() != nullptr ? stop()->load() : 0;
    result.epochs = static_cast<std::uint32_t>(step_ / steps_per_epoch_);
    result.step = step_;
    MILLRACE_LET(states, ranks_.all_members(engine().store().read_states()));
    for (const ops::MemberState& member : states) result.dropped += member.skipped;
    result.classifies = engine().model().classifies();
    result.best_metric = setup_.settings.checkpoint.best_metric;
    result.parameters = engine().store().trainable_count();
    result.seconds = totals.seconds;
    result.samples_per_second = totals.samples_per_second;
    result.steps_per_second = totals.steps_per_second;
    const auto waits = ranks_.watchdog().pause();
    for (Listener* listener : listeners_) MILLRACE_TRY(listener->on_stop(result));
    return result;
}

StartReport Loop::start_report() {
    StartReport start;
    start.run = run_;
    start.model = setup_.settings.model;
    start.preset = setup_.settings.preset;
    start.make = engine().model().description();
    start.parameters = engine().store().trainable_count();
    start.members = members();
    start.device = setup_.device;
    start.precision = setup_.precision;
    start.data = data_text(setup_.data, setup_.unit);
    for (const std::string& note : setup_.notes) start.data += "\n        " + note;
    start.memory = engine().memory_text();
    start.ranks = setup_.ranks;
    start.loading = setup_.loading;
    start.steps_per_epoch = steps_per_epoch_;
    start.total_steps = ended_.empty() ? total_steps_ : step_;
    start.first_step = step_;
    start.epochs = setup_.settings.epochs;
    start.resumed = step_ > 0;
    start.on_gpu = engine().backend().kind() == ops::DeviceKind::cuda;
    return start;
}

MetricsPlan Loop::metrics_plan() {
    MetricsPlan plan{setup_.settings.log_interval, steps_per_epoch_, total_steps_, setup_.settings.epochs};
    plan.classifies = engine().model().classifies();
    plan.member_groups = ranks_.groups();
    plan.scales_loss = engine().store().options().precision == tape::Precision::f16;
    plan.flops_per_sample = flops_per_sample();
    plan.peak_flops = engine().peak_flops();
    return plan;
}

double Loop::flops_per_sample() {
    const EpochSteps& epoch = engine().epoch();
    const std::int64_t rows = (epoch.regular > 0 ? epoch.step : epoch.last).total();
    // How much of what hangs on a condition was done is known on the device alone, and asking would make steps wait.
    const tape::Flops flops = engine().flops(0);
    return flops.conditional == 0 ? static_cast<double>(flops.always) / static_cast<double>(rows * engine().members()) : 0;
}

std::unique_ptr<Engine> Loop::replace_engine(std::unique_ptr<Engine> engine) {
    tape::Store &before = setup_.engine->store(), &after = engine->store();
    const tensor::View ring = after.ring(), counter = after.ring_counter();
    MILLRACE_ASSERT(
        ring.count() == before.ring().count() && static_cast<std::uint64_t>(engine->epoch().count()) == steps_per_epoch_,
        "the engine is of another run");
    // The rows of the newest steps say that they were finished.
    after.write(ring, before.ring_rows(), static_cast<std::size_t>(ring.count()));
    std::uint64_t pushes = 0;
    before.read(before.ring_counter(), &pushes, sizeof pushes);
    after.write(counter, &pushes, sizeof pushes);
    std::swap(setup_.engine, engine);
    reader_.follow(after.ring_rows());
    metrics_->set_flops(flops_per_sample());
    return engine;
}

/// For every source, two readings of the clock per step.
base::Status Loop::await_rows() {
    const auto begin = clock_.now();
    MILLRACE_TRY(engine().await_rows(step_, steps_done_));
    StepWait wait{step_ + 1, epoch_of(step_ + 1), {}, clock_.now()};
    wait.wait = wait.now - begin;
    wait.spike = metrics_->loader_waits().add(wait.wait);
    for (Listener* listener : listeners_) listener->on_wait(wait);
    return base::ok();
}

base::Result<std::uint64_t> Loop::finished_steps() {
    MILLRACE_TRY(engine().backend().check());
    while (finished_ < launched_ && reader_.arrived(finished_ + 1)) finished_ += 1;
    return step_ - launched_ + finished_;
}

base::Status Loop::launch() {
    const std::uint64_t index = step_ % steps_per_epoch_;
    if (const Timing timing = timing_due(); timing != Timing::none) return timed_step(timing, index);
    step_ += 1;
    launched_ += 1;
    if (!setup_.settings.debug_nonfinite)
        engine().launch_step(index);
    else if (const auto found = engine().checked_step(index))
        return base::Error{fmt::format("step {}: {}", step_, found->text()), {}, 1};
    return hold_back();
}

/// The second step, so that short runs have one, and then every so often; kernels one step later.
Loop::Timing Loop::timing_due() const {
    const TelemetrySettings& telemetry = setup_.settings.telemetry;
    if (!telemetry.components || setup_.settings.debug_nonfinite) return Timing::none;
    const std::uint64_t number = step_ + 1, since = number % telemetry.components_every;
    if (number == 2 || (since == 0 && number > 2)) return Timing::phases;
    if (telemetry.operators && (number == 3 || (since == 1 && number > 3))) return Timing::kernels;
    return Timing::none;
}

/// One step by an instrumented program, with nothing else under way.
base::Status Loop::timed_step(Timing timing, std::uint64_t index) {
    MILLRACE_TRY(settle());
    metrics_->pause();
    step_ += 1;
    launched_ += 1;
    metrics_->exclude(launched_);
    TimedStep timed{step_, epoch_of(step_), metrics_->totals().seconds};
    const comm::UnderWay::Scope waits(ranks_.world().waits());
    if (timing == Timing::kernels)
        MILLRACE_SET(timed.kernels, engine().operator_step(index));
    else
        MILLRACE_SET(timed.phases, engine().component_step(index));
    for (Listener* listener : listeners_) listener->on_timed_step(timed);
    MILLRACE_TRY(settle());
    metrics_->resume();
    return base::ok();
}

/// Waits while too many steps are in flight or the ring's reader lags; reads host memory alone.
base::Status Loop::hold_back() {
    const comm::UnderWay::Scope waits(ranks_.world().waits());
    return wait_while(engine().backend(), [this] {
        return is_far_ahead(reader_, launched_) || launched_ - reader_.consumed() + kStepsInFlight >= reader_.capacity();
    });
}

/// Everything launched has run and has been summed.
base::Status Loop::settle() {
    // Step by step: the timeout is that of one.
    for (std::uint64_t step = finished_ + 1; ranks_.several() && step <= launched_; ++step) {
        const comm::UnderWay::Scope waits(ranks_.world().waits());
        MILLRACE_TRY(wait_while(engine().backend(), [&] { return !reader_.arrived(step); }));
        finished_ = step;
    }
    engine().backend().synchronize();
    MILLRACE_TRY(engine().backend().check());
    metrics_->wait_for(launched_);
    return base::ok();
}

base::Status Loop::pause() {
    MILLRACE_TRY(settle());
    metrics_->pause();
    metrics_->close_interval();
    return base::ok();
}

/// Often enough to stop soon, seldom enough to cost nothing: rank 0 says at which step the next meeting is.
base::Status Loop::meet() {
    constexpr double kMeetingSeconds = 0.25;
    const auto now = clock_.now();
    const double seconds = std::chrono::duration<double>(now - met_at_).count(), done = static_cast<double>(step_ - met_step_);
    const double steps = seconds > 0 ? std::clamp(done / seconds * kMeetingSeconds, 1.0, std::max(1.0, 2 * done)) : 1;
    met_at_ = now;
    met_step_ = step_;
    const Wishes own{stop_ != nullptr ? stop_->load() : 0, std::ranges::any_of(listeners_, &Listener::stop_requested),
                     save_wish_ && save_wish_(), step_ + static_cast<std::uint64_t>(steps)};
    MILLRACE_LET(all, ranks_.world().all_of(own));
    agreed_.next = all.front().next;
    for (const Wishes& wishes : all) {
        if (agreed_stop_ == 0) agreed_stop_ = static_cast<int>(wishes.signal);
        agreed_.ends |= wishes.ends;
        agreed_.saves |= wishes.saves;
    }
    return base::ok();
}

base::Status Loop::end_epoch(bool whole) {
    const auto waits = ranks_.watchdog().pause();  // rank 0 writes while the others wait
    MILLRACE_TRY(pause());
    const MetricsThread::Totals totals = metrics_->totals();
    MILLRACE_LET(sums, epoch_sums());
    if (whole) (void)metrics_->take_epoch();
    EpochReport report;
    report.epoch = epoch_of(step_);
    report.epochs = setup_.settings.epochs;
    report.step = step_;
    for (const MemberSums& member : sums.members) report.training.push_back({member.mean_loss(), member.accuracy(), {}});
    report.training_seconds = totals.seconds;
    report.seconds = totals.seconds - epoch_seconds_;
    report.samples_per_second = report.seconds > 0 ? (totals.samples - epoch_samples_) / report.seconds : 0;
    epoch_seconds_ = totals.seconds;
    epoch_samples_ = totals.samples;
    report.pace = metrics_->epoch_pace(report.samples_per_second);
    report.steps = sums.steps() * sums.members.size();
    report.dropped = sums.dropped();
    report.classifies = engine().model().classifies();
    if (const auto& domains = setup_.settings.domains; !domains.empty())
        report.domain = domains[(report.epoch - 1) * domains.size() / report.epochs].name;
    report.scales_loss = engine().store().options().precision == tape::Precision::f16;
    if (const auto counts = engine().source().loader_counts(report.epoch - 1)) {
        report.loader_bytes = counts->bytes - std::exchange(loader_bytes_, counts->bytes);
        report.mix_deviation = counts->mix_deviation;
    }
    // The first rows of the next epoch are read while listeners evaluate.
    if (!complete()) MILLRACE_TRY(engine().prefetch_rows(step_, steps_done_));
    for (Listener* listener : listeners_) MILLRACE_TRY(listener->on_epoch(report));
    begin_epoch();
    resume();
    return base::ok();
}

}  // namespace millrace::train
