#pragma once
// What a run may say about its optimizer and learning-rate schedule, and how that reaches the store and the members' state.

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"
#include "tape/store.h"

namespace millrace::optim {

/// One value for all members, or one for each.
template <class T>
struct PerMember {
    std::vector<T> values;

    PerMember(T all) : values{all} {}  // NOLINT(google-explicit-constructor): settings are written as plain values
    PerMember(std::initializer_list<T> each) : values(each) {}
    PerMember(std::vector<T> each) : values(std::move(each)) {}  // NOLINT(google-explicit-constructor)
    [[nodiscard]] T of(std::size_t member) const { return values.size() == 1 ? values[0] : values.at(member); }
    friend bool operator==(const PerMember&, const PerMember&) = default;
};

struct ScheduleSettings {
    PerMember<ops::ScheduleKind> kind = ops::ScheduleKind::constant;
    PerMember<std::uint32_t> warmup_steps = 0;  ///< the rate rises linearly from base / warmup_steps
    PerMember<std::uint32_t> total_steps = 0;   ///< length of the run; cosine ends there
    PerMember<double> floor = 0;                ///< cosine: share of the base rate that remains
    PerMember<std::uint32_t> interval = 1;      ///< step: steps between two decays
    PerMember<double> gamma = 1;                ///< step: factor of each
};

struct OptimizerSettings {
    ops::OptimizerKind kind = ops::OptimizerKind::adam;
    PerMember<double> lr = 1e-3;
    PerMember<double> weight_decay = 0;  ///< adam and sgd: L2 in the gradient, adamw: decoupled
    PerMember<double> beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    PerMember<double> momentum = 0.9;  ///< sgd
    PerMember<double> clip_norm = 0;   ///< 0: no clipping
    bool decay_biases = true;          ///< false: vectors (biases, norms) of no group of their own do not decay
    std::int32_t accumulation = 1;     ///< micro-batches of one full step
    std::uint32_t scale_interval = 0;  ///< applied steps that double the loss scale; 0: by the precision (optim/update.h)
    ScheduleSettings schedule{};
};

/// Refuses what cannot train: empty or wrong-length lists, rates that are negative or not finite, betas outside [0, 1), zero
/// epsilon, ...
base::Status validate(const OptimizerSettings& settings, int members);

/// Which moment arenas and groups the optimizer needs.
void request_arenas(const OptimizerSettings& settings, tape::StoreOptions& options);

/// Writes the hyper-parameters into every member's state; identity and progress stay.
void apply(const OptimizerSettings& settings, std::vector<ops::MemberState>& states);

}  // namespace millrace::optim
