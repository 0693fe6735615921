#pragma once
// What a run may say about its optimizer and learning-rate schedule, and how that reaches the store and the members' state.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"
#include "tape/store.h"

namespace millrace::optim {

struct ScheduleSettings {
    ops::ScheduleKind kind = ops::ScheduleKind::constant;
    std::uint32_t warmup_steps = 0;  ///< the rate rises linearly from base / warmup_steps
    std::uint32_t total_steps = 0;   ///< length of the run; cosine ends there
    double floor = 0;                ///< cosine: share of the base rate that remains
    std::uint32_t interval = 1;      ///< step: steps between two decays
    double gamma = 1;                ///< step: factor of each
};

struct OptimizerSettings {
    ops::OptimizerKind kind = ops::OptimizerKind::adam;
    std::vector<double> lr{1e-3};           ///< one for all members, or one for each
    std::vector<double> weight_decay{0.0};  ///< likewise; adam and sgd: L2 in the gradient, adamw: decoupled
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double momentum = 0.9;          ///< sgd
    double clip_norm = 0;           ///< 0: no clipping
    std::int32_t accumulation = 1;  ///< micro-batches of one full step
    ScheduleSettings schedule{};
};

/// Refuses what cannot train: empty or wrong-length lists, rates that are negative or not finite, betas outside [0, 1), zero
/// epsilon, ...
base::Status validate(const OptimizerSettings& settings, int members);

/// Which moment arenas the optimizer needs.
void request_moments(const OptimizerSettings& settings, tape::StoreOptions& options);

/// Writes the hyper-parameters into every member's state; identity and progress stay.
void apply(const OptimizerSettings& settings, std::vector<ops::MemberState>& states);

}  // namespace millrace::optim
