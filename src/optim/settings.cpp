#include "optim/settings.h"
#include "ops/optimizer/optimizer.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace::optim {
namespace {

template <class T>
base::Status check_length(const char* key, const PerMember<T>& setting, int members) {
    const std::size_t count = setting.values.size();
    if (count == 1 || count == static_cast<std::size_t>(members)) return base::ok();
    return base::Error{
        fmt::format("{} has {} values; one, or one for each of the {} members, would be right", key, count, members)};
}

/// Every value must be one that `fits` accepts; `right` says which do.
template <class T, class Fits>
base::Status check(const char* key, const PerMember<T>& setting, int members, const char* right, const Fits& fits) {
    MILLRACE_TRY(check_length(key, setting, members));
    for (const T value : setting.values)
        if (!fits(value)) return base::Error{fmt::format("{} is {}; {} would be right", key, value, right)};
    return base::ok();
}

bool is_rate(double value) { return std::isfinite(value) && value >= 0; }
bool is_factor(double value) { return std::isfinite(value) && value > 0; }
bool is_memory(double value) { return value >= 0 && value < 1; }
bool is_share(double value) { return value >= 0 && value <= 1; }

}  // namespace

base::Status validate(const OptimizerSettings& settings, int members) {
    MILLRACE_TRY(check("optim.lr", settings.lr, members, "a finite number of at least 0", is_rate));
    MILLRACE_TRY(check("optim.weight_decay", settings.weight_decay, members, "a finite number of at least 0", is_rate));
    MILLRACE_TRY(check("optim.beta1", settings.beta1, members, "a number in [0, 1)", is_memory));
    MILLRACE_TRY(check("optim.beta2", settings.beta2, members, "a number in [0, 1)", is_memory));
    MILLRACE_TRY(check("optim.momentum", settings.momentum, members, "a number in [0, 1)", is_memory));
    MILLRACE_TRY(check("optim.epsilon", settings.epsilon, members, "a small number above 0", is_factor));
    MILLRACE_TRY(check("optim.clip_norm", settings.clip_norm, members, "0 (no clipping) or a finite norm", is_rate));
    if (settings.accumulation < 1)
        return base::Error{
            fmt::format("accumulation is {}; at least 1 micro-batch per step would be right", settings.accumulation)};
    const ScheduleSettings& schedule = settings.schedule;
    MILLRACE_TRY(check_length("the schedule's kind", schedule.kind, members));
    MILLRACE_TRY(check_length("the schedule's warm-up", schedule.warmup_steps, members));
    MILLRACE_TRY(check_length("the schedule's length", schedule.total_steps, members));
    MILLRACE_TRY(check("the schedule's floor", schedule.floor, members, "a share in [0, 1]", is_share));
    MILLRACE_TRY(check("the schedule's interval", schedule.interval, members, "at least 1 step",
                       [](std::uint32_t steps) { return steps >= 1; }));
    return check("the schedule's gamma", schedule.gamma, members, "a factor above 0", is_factor);
}

void request_arenas(const OptimizerSettings& settings, tape::StoreOptions& options) {
    const bool adaptive = settings.kind != ops::OptimizerKind::sgd;
    options.first_moment = adaptive || settings.momentum != PerMember<double>(0);
    options.second_moment = adaptive;
    options.decay_vectors = settings.decay_biases;
}

void apply(const OptimizerSettings& settings, std::vector<ops::MemberState>& states) {
    const ScheduleSettings& schedule = settings.schedule;
    for (std::size_t member = 0; member < states.size(); ++member) {
        ops::MemberState& state = states[member];
        const auto& beta1 = settings.kind == ops::OptimizerKind::sgd ? settings.momentum : settings.beta1;
        state.base_lr = static_cast<float>(settings.lr.of(member));
        state.weight_decay = static_cast<float>(settings.weight_decay.of(member));
        state.beta1 = static_cast<float>(beta1.of(member));
        state.beta2 = static_cast<float>(settings.beta2.of(member));
        state.epsilon = static_cast<float>(settings.epsilon.of(member));
        state.clip_norm = static_cast<float>(settings.clip_norm.of(member));
        state.schedule = schedule.kind.of(member);
        state.warmup_steps = schedule.warmup_steps.of(member);
        state.total_steps = schedule.total_steps.of(member);
        state.interval = schedule.interval.of(member);
        state.floor = schedule.floor.of(member);
        state.gamma = schedule.gamma.of(member);
    }
}

}  // namespace millrace::optim
