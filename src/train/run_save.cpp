#include <fmt/format.h>
#include <sys/resource.h>

#include "base/log.h"
#include "train/run.h"

namespace millrace::train {

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

RunFigures Run::figures() {
    const MetricsThread::Totals totals = metrics_->totals();
    RunFigures figures;
    figures.model = setup_.settings.model;
    figures.preset = setup_.settings.preset;
    figures.device = setup_.device;
    figures.precision = setup_.precision;
    figures.parameters = engine_.store().trainable_count();
    figures.seconds = totals.seconds;
    figures.samples_per_second = totals.samples_per_second;
    figures.steps_per_second = totals.steps_per_second;
    figures.wall_seconds = std::chrono::duration<double>(clock_.now() - began_).count();
    figures.gpu_utilization_percent = gpu_utilization_;
    figures.sm_active_percent = sm_active_;
    figures.cpu_share = figures.wall_seconds > 0 ? (cpu_seconds() - cpu_began_) / (figures.wall_seconds * setup_.threads) : 0;
    return figures;
}

/// Views into `weights`, which must outlive the result.
io::Checkpoint Run::checkpoint_now(models::WeightCopies& weights) {
    state_.steps_per_epoch = steps_per_epoch_;
    state_.micro_batch = engine_.micro_batch();
    state_.members = engine_.store().read_states();
    state_.groups = read_groups(engine_.store());
    state_.epoch_sums = metrics_->epoch_sums();
    state_.recipe = recipe_.to_toml();
    state_.recipe_json = recipe_.to_json();
    state_.data = setup_.data;
    state_.complete = state_.step >= total_steps();
    state_.figures = figures();
    state_.metrics_offset = metrics_->sync();
    io::Checkpoint checkpoint;
    checkpoint.step = state_.step;
    checkpoint.members = std::move(weights.members);
    checkpoint.state = encode_state(state_);
    checkpoint.compress_optimizer = setup_.settings.checkpoint.compress;
    return checkpoint;
}

base::Status Run::save(bool is_best, io::CheckpointKind kind, IfUnsaved then) {
    const std::vector<models::Attachment> attachments = engine_.model().attachments();
    models::WeightCopies weights = models::copy_weights(engine_.store(), batches_done(), attachments);
    const io::Checkpoint checkpoint = checkpoint_now(weights);
    MILLRACE_TRY(engine_.backend().check());  // a device that failed leaves zeros, which must not replace a good checkpoint
    saved_at_ = clock_.now();
    const auto saved = checkpoints_.save(checkpoint, is_best, kind);
    const auto step = static_cast<std::int64_t>(state_.step);
    if (!saved.ok()) {
        if (then == IfUnsaved::fails) return saved.error();
        MILLRACE_LOG(warn, "{}\ntraining goes on; the next checkpoint tries again", saved.error().text());
        (void)telemetry_.events().append("checkpoint_failed", saved.error().text(), {{"step", step}});
        return base::ok();
    }
    saved_step_ = state_.step;
    MILLRACE_LOG(performance, "saved {} ({} bytes)", saved->folder.string(), saved->bytes);
    (void)telemetry_.events().append("checkpoint", fmt::format("saved {}", saved->folder.filename().string()),
                                     {{"step", step}, {"bytes", static_cast<std::int64_t>(saved->bytes)}, {"best", is_best}});
    return base::ok();
}

/// On request, or when checkpoint.every_time has passed since the newest. The last step's own checkpoint is about to come.
base::Status Run::save_between_epochs(const std::atomic<std::uint32_t>* saves) {
    const std::uint32_t requests = saves != nullptr ? saves->load(std::memory_order_relaxed) : 0;
    const std::chrono::nanoseconds every = setup_.settings.checkpoint.every_time;
    const bool requested = requests != saves_seen_, due = every.count() > 0 && clock_.now() - saved_at_ >= every;
    if ((!requested && !due) || state_.step >= total_steps()) return base::ok();
    saves_seen_ = requests;
    if (saved_step_ != state_.step) {
        MILLRACE_TRY(settle());
        metrics_->pause();
        metrics_->close_interval();  // what the checkpoint's offset covers is then complete
        MILLRACE_TRY(save(false, requested ? io::CheckpointKind::kStep : io::CheckpointKind::kTimed, IfUnsaved::goes_on));
        metrics_->resume();
    }
    if (requested && saved_step_ == state_.step) MILLRACE_LOG(info, "saved step {} as a signal asked for", state_.step);
    return base::ok();
}

}  // namespace millrace::train
