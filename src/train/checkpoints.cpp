#include "train/checkpoints.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/log.h"
#include "models/weights.h"

namespace millrace::train {
namespace {

double process_cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Checkpoints::Checkpoints(const Parts& parts, std::optional<std::uint64_t> saved_step)
    : parts_(parts),
      loop_(parts.loop),
      saved_step_(saved_step),
      began_(parts.clock.now()),
      cpu_began_(process_cpu_seconds()),
      saved_at_(began_) {
    loop_.on_save_wish([this] { return requests() != saves_seen_ || is_due(); });
}

/// On request, or when checkpoint.every_time has passed since the newest. The last step's own checkpoint is about to come.
base::Status Checkpoints::on_step(std::uint64_t step) {
    if (!loop_.save_wished() || loop_.complete()) return base::ok();
    const bool requested = requests() != saves_seen_;
    saves_seen_ = requests();
    if (saved_step_ != step) {
        MILLRACE_TRY(loop_.pause());
        MILLRACE_TRY(save({}, requested ? io::CheckpointKind::kStep : io::CheckpointKind::kTimed, IfUnsaved::goes_on));
        loop_.resume();
    }
    if (requested && saved_step_ == step) MILLRACE_LOG(info, "saved step {} as a signal asked for", step);
    return base::ok();
}

base::Status Checkpoints::on_epoch(EpochReport& report) {
    const MachineReport& machine = report.pace.machine;
    if (!machine.line.gpus.empty()) {
        gpu_utilization_ = machine.line.gpus.front().utilization_percent;
        sm_active_ = machine.sm_active_percent;
    }
    const bool last = loop_.complete(), due = report.epoch % loop_.setup().settings.checkpoint.every_epochs == 0;
    const bool is_best = !report.best_members.empty();
    if (is_best || due || last)
        MILLRACE_TRY(save(report.best_members, io::CheckpointKind::kStep, last ? IfUnsaved::fails : IfUnsaved::goes_on));
    if (is_best && saved_step_ != report.step) {  // the best weights are the best that are on the disk
        parts_.selection.undo();
        parts_.patience.undo();
        report.best = false;
        report.best_members.clear();
    }
    return base::ok();
}

base::Status Checkpoints::save(const std::vector<bool>& best, io::CheckpointKind kind, IfUnsaved then) {
    const auto waits = loop_.ranks().watchdog().pause();  // rank 0 writes while the others wait
    Engine& engine = loop_.engine();
    const std::vector<models::Attachment> attachments = engine.attachments();
    MILLRACE_LET(checkpoint, checkpoint_now());
    MILLRACE_SET(checkpoint.members,
                 loop_.ranks().all_weights(models::stored_tensors(engine.store(), batches_done(), attachments)));
    checkpoint.keeps_best = best;
    checkpoint.keeps_best.flip();
    MILLRACE_TRY(engine.backend().check());  // a device that failed leaves zeros, which must not replace a good checkpoint
    saved_at_ = parts_.clock.now();
    const base::Status saved = write(checkpoint, !best.empty(), kind);
    const auto step = static_cast<std::int64_t>(checkpoint.step);
    if (!saved.ok()) {
        if (then == IfUnsaved::fails) return saved.error();
        if (parts_.store == nullptr) return base::ok();
        MILLRACE_LOG(warn, "{}\ntraining goes on; the next checkpoint tries again", saved.error().text());
        (void)parts_.events->append("checkpoint_failed", saved.error().text(), {{"step", step}});
        return base::ok();
    }
    saved_step_ = checkpoint.step;
    return base::ok();
}

base::Status Checkpoints::write(const io::Checkpoint& checkpoint, bool is_best, io::CheckpointKind kind) {
    base::Status written = base::ok();
    if (parts_.store != nullptr) {
        if (const auto saved = parts_.store->save(checkpoint, is_best, kind); !saved.ok()) {
            written = saved.error();
        } else {
            MILLRACE_LOG(performance, "saved {} ({} bytes)", saved->folder.string(), saved->bytes);
            (void)parts_.events->append("checkpoint", fmt::format("saved {}", saved->folder.filename().string()),
                                        {{"step", static_cast<std::int64_t>(checkpoint.step)},
                                         {"bytes", static_cast<std::int64_t>(saved->bytes)},
                                         {"best", is_best}});
        }
    }
    return loop_.ranks().world().agree(written);
}

base::Result<io::Checkpoint> Checkpoints::checkpoint_now() {
    Engine& engine = loop_.engine();
    RunState state;
    state.step = loop_.step();
    state.steps_per_epoch = loop_.steps_per_epoch();
    state.micro_batch = engine.micro_batch();
    state.forms = engine.backend().forms();
    MILLRACE_SET(state.members, loop_.ranks().all_members(engine.store().read_states()));
    read_groups(engine.store(), state);
    MILLRACE_SET(state.groups, loop_.ranks().all_members(state.groups));
    MILLRACE_SET(state.epoch_sums, loop_.epoch_sums());
    state.recipe = parts_.recipe.to_toml();
    state.recipe_json = parts_.recipe.to_json();
    state.best = parts_.selection.best();
    state.staleness = parts_.patience.state();
    state.domains = parts_.domains.epochs();
    state.data = loop_.setup().data;
    state.complete = loop_.complete();
    state.figures = figures();
    state.metrics_offset = parts_.log != nullptr ? parts_.log->sync() : 0;
    io::Checkpoint checkpoint;
    checkpoint.step = state.step;
    checkpoint.state = encode_state(state);
    checkpoint.compress_optimizer = loop_.setup().settings.checkpoint.compress;
    return checkpoint;
}

RunFigures Checkpoints::figures() {
    const MetricsThread::Totals totals = loop_.metrics().totals();
    const Setup& setup = loop_.setup();
    RunFigures figures;
    figures.model = setup.settings.model;
    figures.preset = setup.settings.preset;
    figures.device = setup.device;
    figures.precision = setup.precision;
    figures.parameters = setup.engine->store().trainable_count();
    figures.seconds = totals.seconds;
    figures.samples_per_second = totals.samples_per_second;
    figures.steps_per_second = totals.steps_per_second;
    figures.wall_seconds = std::chrono::duration<double>(parts_.clock.now() - began_).count();
    figures.gpu_utilization_percent = gpu_utilization_;
    figures.sm_active_percent = sm_active_;
    if (figures.wall_seconds > 0)
        figures.cpu_share = (process_cpu_seconds() - cpu_began_) / (figures.wall_seconds * setup.threads);
    return figures;
}

std::int64_t Checkpoints::batches_done() {
    const EpochSteps& epoch = loop_.engine().epoch();
    const std::int64_t per_epoch =
        epoch.regular * std::int64_t{epoch.step.full} + epoch.last.full + (epoch.last.tail > 0 ? 1 : 0);
    return static_cast<std::int64_t>(loop_.step() / loop_.steps_per_epoch()) * per_epoch +
           static_cast<std::int64_t>(loop_.step() % loop_.steps_per_epoch()) * epoch.step.full;
}

}  // namespace millrace::train
