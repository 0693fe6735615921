#pragma once
// Sums over steps of what the metrics ring holds, per member: one set per log interval, one per epoch.

#include <cstdint>
#include <limits>
#include <vector>

#include "train/metrics_reader.h"

namespace millrace::train {

/// Steps dropped because of a non-finite value are counted and left out of every mean.
struct MemberSums {
    std::uint64_t steps = 0, dropped = 0, rows = 0, correct = 0;
    double loss = 0;     ///< sum over rows
    double penalty = 0;  ///< sum over steps
    double grad_norm = 0, grad_norm_max = 0;
    double loss_min = std::numeric_limits<double>::infinity();  ///< of the steps' means
    double loss_max = -std::numeric_limits<double>::infinity();
    float lr = 0;  ///< of the newest step
    float loss_scale = 1;

    void add(const ops::MetricsRow& row);
    /// Means; NaN when there was no step, which is written as null and never as 0.
    [[nodiscard]] double mean_loss() const;
    [[nodiscard]] double accuracy() const;
    [[nodiscard]] double mean_penalty() const;
    [[nodiscard]] double mean_grad_norm() const;
};

struct StepSums {
    explicit StepSums(int count) : members(static_cast<std::size_t>(count)) {}
    std::vector<MemberSums> members;
    std::uint32_t last_step = 0;  ///< number of the newest step

    void add(RingRows rows);
    /// Optimizer steps of one member, dropped ones included.
    [[nodiscard]] std::uint64_t steps() const { return members.front().steps + members.front().dropped; }
    [[nodiscard]] std::uint64_t dropped() const;  ///< over all members
    [[nodiscard]] double mean_loss() const;       ///< mean over the members that have one
};

}  // namespace millrace::train
