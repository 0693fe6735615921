#include "optim/settings.h"
#include "ops/optimizer/optimizer.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace::optim {
namespace {

base::Status check_list(const char* key, const std::vector<double>& values, int members) {
    if (values.size() != 1 && static_cast<int>(values.size()) != members)
        return base::Error{
            fmt::format("{} has {} values; one, or one for each of the {} members, would be right", key, values.size(), members)};
    for (double value : values)
        if (!std::isfinite(value) || value < 0)
            return base::Error{fmt::format("{} is {}; a finite number of at least 0 would be right", key, value)};
    return base::ok();
}

base::Status check_range(const char* key, double value, double low, double below) {
    if (value >= low && value < below) return base::ok();
    return base::Error{fmt::format("{} is {}; a number in [{}, {}) would be right", key, value, low, below)};
}

double pick(const std::vector<double>& values, std::size_t member) { return values.size() == 1 ? values[0] : values[member]; }

}  // namespace

base::Status validate(const OptimizerSettings& settings, int members) {
    MILLRACE_TRY(check_list("optim.lr", settings.lr, members));
    MILLRACE_TRY(check_list("optim.weight_decay", settings.weight_decay, members));
    MILLRACE_TRY(check_range("optim.beta1", settings.beta1, 0, 1));
    MILLRACE_TRY(check_range("optim.beta2", settings.beta2, 0, 1));
    MILLRACE_TRY(check_range("optim.momentum", settings.momentum, 0, 1));
    if (!(settings.epsilon > 0) || !std::isfinite(settings.epsilon))
        return base::Error{fmt::format("optim.epsilon is {}; a small number above 0 would be right", settings.epsilon)};
    if (!(settings.clip_norm >= 0) || !std::isfinite(settings.clip_norm))
        return base::Error{
            fmt::format("optim.clip_norm is {}; 0 (no clipping) or a finite norm would be right", settings.clip_norm)};
    if (settings.accumulation < 1)
        return base::Error{
            fmt::format("accumulation is {}; at least 1 micro-batch per step would be right", settings.accumulation)};
    const ScheduleSettings& schedule = settings.schedule;
    if (!(schedule.floor >= 0 && schedule.floor <= 1))
        return base::Error{fmt::format("the schedule's floor is {}; a share in [0, 1] would be right", schedule.floor)};
    if (schedule.interval < 1) return base::Error{"the schedule's interval is 0; at least 1 step would be right"};
    if (!(schedule.gamma > 0) || !std::isfinite(schedule.gamma))
        return base::Error{fmt::format("the schedule's gamma is {}; a factor above 0 would be right", schedule.gamma)};
    return base::ok();
}

void request_moments(const OptimizerSettings& settings, tape::StoreOptions& options) {
    const bool adaptive = settings.kind != ops::OptimizerKind::sgd;
    options.first_moment = adaptive || settings.momentum != 0;
    options.second_moment = adaptive;
}

void apply(const OptimizerSettings& settings, std::vector<ops::MemberState>& states) {
    for (std::size_t member = 0; member < states.size(); ++member) {
        ops::MemberState& state = states[member];
        state.base_lr = static_cast<float>(pick(settings.lr, member));
        state.weight_decay = static_cast<float>(pick(settings.weight_decay, member));
        state.beta1 = static_cast<float>(settings.kind == ops::OptimizerKind::sgd ? settings.momentum : settings.beta1);
        state.beta2 = static_cast<float>(settings.beta2);
        state.epsilon = static_cast<float>(settings.epsilon);
        state.clip_norm = static_cast<float>(settings.clip_norm);
    }
}

}  // namespace millrace::optim
