#pragma once
// Sums over steps of what the metrics ring holds, per member: one set per log interval, one per epoch.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "train/metrics_reader.h"

namespace millrace::train {

/// NaN of nothing, which is written as null and never as 0.
inline double mean_over(double sum, std::uint64_t count) {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

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

    void add(const ops::MetricsRow& row) {
        lr = row.lr;
        loss_scale = row.loss_scale;
        if (row.nonfinite != 0 || row.rows == 0) {
            dropped += 1;
            return;
        }
        const double mean = row.loss / row.rows;
        steps += 1;
        rows += row.rows;
        correct += row.correct;
        loss += row.loss;
        penalty += row.penalty;
        grad_norm += row.grad_norm;
        grad_norm_max = std::max(grad_norm_max, static_cast<double>(row.grad_norm));
        loss_min = std::min(loss_min, mean);
        loss_max = std::max(loss_max, mean);
    }
    [[nodiscard]] double mean_loss() const { return mean_over(loss, rows); }
    [[nodiscard]] double accuracy() const { return mean_over(static_cast<double>(correct), rows); }
    [[nodiscard]] double mean_penalty() const { return mean_over(penalty, steps); }
    [[nodiscard]] double mean_grad_norm() const { return mean_over(grad_norm, steps); }
};

struct StepSums {
    explicit StepSums(int count) : members(static_cast<std::size_t>(count)) {}
    std::vector<MemberSums> members;
    std::uint32_t last_step = 0;  ///< number of the newest step

    void add(RingRows of_members) {
        for (std::size_t k = 0; k < members.size(); ++k) members[k].add(of_members[k]);
        last_step = of_members.front().step;
    }
    /// Optimizer steps of one member, dropped ones included.
    [[nodiscard]] std::uint64_t steps() const { return members.front().steps + members.front().dropped; }
    [[nodiscard]] std::uint64_t dropped() const {  ///< over all members
        std::uint64_t sum = 0;
        for (const MemberSums& member : members) sum += member.dropped;
        return sum;
    }
    [[nodiscard]] double mean_loss() const {  ///< mean over the members that have one
        double sum = 0;
        std::uint64_t count = 0;
        for (const MemberSums& member : members) {
            if (member.rows == 0) continue;
            sum += member.mean_loss();
            ++count;
        }
        return mean_over(sum, count);
    }
};

}  // namespace millrace::train
