#include "train/run_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/units.h"
#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"

namespace millrace::train {
namespace {

constexpr std::chrono::nanoseconds kShortestInterval = std::chrono::milliseconds{1};

ops::OptimizerKind optimizer_named(const std::string& name) {
    return name == "sgd" ? ops::OptimizerKind::sgd : name == "adamw" ? ops::OptimizerKind::adamw : ops::OptimizerKind::adam;
}

ops::ScheduleKind schedule_named(const std::string& name) {
    return name == "cosine" ? ops::ScheduleKind::cosine : name == "step" ? ops::ScheduleKind::step : ops::ScheduleKind::constant;
}

std::uint32_t steps_in(double epochs, std::int64_t steps_per_epoch) {
    const double steps = std::round(epochs * static_cast<double>(steps_per_epoch));
    return static_cast<std::uint32_t>(std::clamp(steps, 0.0, static_cast<double>(std::numeric_limits<std::uint32_t>::max())));
}

base::Result<optim::ScheduleSettings> read_schedule(const base::Recipe& recipe, std::int64_t steps_per_epoch) {
    const auto steps = [&](const char* key, std::uint32_t least) {
        std::vector<std::uint32_t> values;
        for (const double epochs : recipe.reals(key)) values.push_back(std::max(least, steps_in(epochs, steps_per_epoch)));
        return values;
    };
    optim::ScheduleSettings schedule;
    const ops::ScheduleKind kind = schedule_named(recipe.text("optim.schedule"));
    schedule.kind = kind;
    schedule.total_steps = steps_in(static_cast<double>(recipe.integer("train.epochs")), steps_per_epoch);
    schedule.floor = recipe.reals("optim.floor");
    schedule.interval = steps("optim.step_epochs", 1);
    if (kind == ops::ScheduleKind::step) schedule.gamma = recipe.reals("optim.step_gamma");
    const std::vector<std::int64_t>& in_steps = recipe.integers("optim.warmup_steps");
    const std::vector<double>& in_epochs = recipe.reals("optim.warmup_epochs");
    const auto positive = [](auto value) { return value > 0; };
    const bool epochs_given = std::ranges::any_of(in_epochs, positive);
    if (std::ranges::any_of(in_steps, positive) && epochs_given)
        return recipe.bad("optim.warmup_epochs", "optim.warmup_steps is given, too; give one of the two");
    schedule.warmup_steps =
        epochs_given ? steps("optim.warmup_epochs", 0) : std::vector<std::uint32_t>(in_steps.begin(), in_steps.end());
    return schedule;
}

base::Result<optim::OptimizerSettings> read_optimizer(const base::Recipe& recipe, std::int64_t steps_per_epoch) {
    optim::OptimizerSettings settings;
    settings.kind = optimizer_named(recipe.text("optim.name"));
    settings.lr = recipe.reals("optim.lr");
    settings.weight_decay = recipe.reals("optim.weight_decay");
    settings.decay_biases = recipe.boolean("optim.decay_biases");
    settings.beta1 = recipe.reals("optim.beta1");
    settings.beta2 = recipe.reals("optim.beta2");
    settings.epsilon = recipe.reals("optim.eps");
    settings.momentum = recipe.reals("optim.momentum");
    settings.clip_norm = recipe.reals("optim.clip_norm");
    settings.accumulation = static_cast<std::int32_t>(recipe.integer("train.accumulate"));
    MILLRACE_SET(settings.schedule, read_schedule(recipe, steps_per_epoch));
    return settings;
}

TelemetrySettings read_telemetry(const base::Recipe& recipe) {
    TelemetrySettings settings;
    settings.interval = recipe.duration("telemetry.interval");
    settings.csv = recipe.boolean("telemetry.csv");
    settings.monitor_csv = recipe.boolean("telemetry.monitor_csv");
    settings.tensorboard = recipe.boolean("telemetry.tensorboard");
    settings.prometheus_file = recipe.text("telemetry.prometheus_file");
    settings.prometheus_port = static_cast<int>(recipe.integer("telemetry.prometheus_port"));
    const std::string& components = recipe.text("telemetry.components");
    settings.components = components == "on" || (components == "auto" && base::log_enabled(base::LogLevel::performance));
    settings.operators = settings.components && base::log_enabled(base::LogLevel::profiling);
    settings.components_every = static_cast<std::uint32_t>(recipe.integer("telemetry.components_every"));
    return settings;
}

}  // namespace

std::vector<std::uint64_t> read_seeds(const base::Recipe& recipe) {
    const bool listed = recipe.integers("seed").size() > 1;
    std::vector<std::uint64_t> seeds;
    for (std::size_t k = 0; k < static_cast<std::size_t>(recipe.integer("members")); ++k) {
        const auto own = static_cast<std::uint64_t>(recipe.integer("seed", k));
        seeds.push_back(listed ? own : own + k);
    }
    return seeds;
}

base::Result<RunSettings> read_settings(const base::Recipe& recipe, std::int32_t training_samples) {
    RunSettings settings;
    settings.model = recipe.text("model.name");
    settings.preset = recipe.text("model.preset");
    settings.members = static_cast<int>(recipe.integer("members"));
    MILLRACE_TRY(recipe.check_members(static_cast<std::size_t>(settings.members)));
    settings.epochs = static_cast<std::uint32_t>(recipe.integer("train.epochs"));
    settings.step_limit = static_cast<std::uint64_t>(recipe.integer("train.steps"));
    settings.patience = static_cast<std::uint32_t>(recipe.integer("train.patience"));
    settings.batch = static_cast<std::int32_t>(recipe.integer("train.batch"));
    settings.eval_batch = static_cast<std::int32_t>(recipe.integer("eval.batch"));
    if (settings.batch > training_samples)
        return recipe.bad("train.batch",
                          fmt::format("train.batch = {} exceeds the {} samples to train on", settings.batch, training_samples));
    settings.micro_batch = static_cast<std::int32_t>(recipe.integer("train.micro_batch"));
    if (settings.micro_batch > 0 && settings.batch % settings.micro_batch != 0)
        return recipe.bad("train.micro_batch",
                          fmt::format("train.micro_batch = {} does not divide train.batch = {}; 0 chooses one that does",
                                      settings.micro_batch, settings.batch));
    settings.memory_limit = static_cast<std::int64_t>(recipe.bytes("train.memory"));
    settings.capture = recipe.boolean("train.capture");
    settings.debug_nonfinite = recipe.boolean("train.debug_nonfinite");
    settings.log_interval = recipe.duration("train.log_interval");
    settings.seeds = read_seeds(recipe);
    const EpochSteps epoch =
        divide_epoch(training_samples, settings.batch, static_cast<std::int32_t>(recipe.integer("train.accumulate")));
    if (std::uint64_t{settings.epochs} * static_cast<std::uint64_t>(epoch.count()) > std::numeric_limits<std::uint32_t>::max())
        return recipe.bad("train.epochs",
                          fmt::format("{} epochs of {} steps exceed 4294967295 steps", settings.epochs, epoch.count()));
    MILLRACE_SET(settings.optimizer, read_optimizer(recipe, epoch.count()));
    MILLRACE_TRY(optim::validate(settings.optimizer, settings.members));
    settings.dropout_scale = recipe.reals("train.dropout_scale");
    settings.checkpoint.every_epochs = static_cast<std::uint32_t>(recipe.integer("checkpoint.every_epochs"));
    settings.checkpoint.every_time = recipe.duration("checkpoint.every_time");
    settings.checkpoint.keep = static_cast<std::uint32_t>(recipe.integer("checkpoint.keep"));
    settings.checkpoint.keep_bytes = recipe.bytes("checkpoint.keep_bytes");
    settings.checkpoint.compress = recipe.boolean("checkpoint.compress");
    settings.checkpoint.best_metric = recipe.text("checkpoint.best_metric");
    settings.telemetry = read_telemetry(recipe);
    if (settings.telemetry.interval.count() > 0 && settings.telemetry.interval < kShortestInterval)
        return recipe.bad(
            "telemetry.interval",
            fmt::format("telemetry.interval = {} leaves no time for anything but looking; at least {}, or 0s: never",
                        base::exact_duration(settings.telemetry.interval), base::exact_duration(kShortestInterval)));
    return settings;
}

void apply_settings(const RunSettings& settings, std::vector<ops::MemberState>& states) {
    optim::apply(settings.optimizer, states);
    for (std::size_t k = 0; k < states.size(); ++k) states[k].dropout_scale = static_cast<float>(settings.dropout_scale.of(k));
}

base::Status check_batch_rows(const base::Recipe& recipe, const RunSettings& settings, std::int32_t training_samples,
                              std::int32_t minimum) {
    const bool split = recipe.integer("train.micro_batch") > 0;
    const char* key = split ? "train.micro_batch" : "train.batch";
    const auto batch = static_cast<std::int32_t>(recipe.integer(key));
    const auto parts = split ? 1 : static_cast<std::int32_t>(settings.ranks.world);
    const auto fits = [&](std::int32_t whole) {
        const std::int32_t rows = whole / parts;
        if (whole % parts != 0 || rows == 0 || rows > training_samples) return false;
        const std::int32_t tail = training_samples % rows;
        return rows >= minimum && (tail == 0 || tail >= minimum);
    };
    if (fits(batch)) return base::ok();
    std::string hint = "; there are too few samples";
    for (std::int32_t away = 1; away < training_samples; ++away) {
        const std::int32_t near = batch > away && fits(batch - away) ? batch - away : batch + away;
        if (!fits(near)) continue;
        hint = fmt::format("; {} = {} would be right", key, near);
        break;
    }
    const std::string why =
        fmt::format("{} normalizes over the rows of a batch and needs {} of them", recipe.text("model.name"), minimum);
    if (batch / parts < minimum) return recipe.bad(key, fmt::format("{} = {}: {}{}", key, batch, why, hint));
    return recipe.bad(key, fmt::format("{} = {} leaves {} of the {} samples for the last batch of an epoch: {}{}", key, batch,
                                       training_samples % (batch / parts), training_samples, why, hint));
}

base::Result<ops::DeviceKind> choose_device(const std::string& requested) {
    if (requested == "cpu") return ops::DeviceKind::cpu;
    const base::Status cuda = ops::cuda_available();
    if (cuda.ok()) return ops::DeviceKind::cuda;
    if (requested == "cuda") return base::Error{"--device cuda: no usable GPU"}.because(cuda.error());
    return ops::DeviceKind::cpu;
}

base::Result<tape::Precision> choose_precision(const std::string& requested, ops::DeviceKind device) {
    return choose_precision(requested, device, device == ops::DeviceKind::cuda && ops::cuda_lacks_bf16());
}

base::Result<tape::Precision> choose_precision(const std::string& requested, ops::DeviceKind device, bool lacks_bf16) {
    using tape::Precision;
    const bool cuda = device == ops::DeviceKind::cuda;
    if (requested == "f32" || (requested == "auto" && !cuda)) return Precision::f32;
    if (!cuda) return base::Error{fmt::format("precision = \"{}\" needs --device cuda; on the CPU use f32 or auto", requested)};
    if (requested == "bf16" && lacks_bf16)
        return base::Error{"precision = \"bf16\" needs a GPU of compute capability 8.0 or newer; on this one use f16 or auto"};
    return requested == "f16" || lacks_bf16 ? Precision::f16 : Precision::bf16;
}

}  // namespace millrace::train
