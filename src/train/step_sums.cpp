#include "train/step_sums.h"

#include <algorithm>

namespace millrace::train {
namespace {

double ratio(double sum, std::uint64_t count) {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

}  // namespace

void MemberSums::add(const ops::MetricsRow& row) {
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

double MemberSums::mean_loss() const { return ratio(loss, rows); }
double MemberSums::accuracy() const { return ratio(static_cast<double>(correct), rows); }
double MemberSums::mean_penalty() const { return ratio(penalty, steps); }
double MemberSums::mean_grad_norm() const { return ratio(grad_norm, steps); }

void StepSums::add(RingRows rows) {
    for (std::size_t k = 0; k < members.size(); ++k) members[k].add(rows[k]);
    last_step = rows.front().step;
}

std::uint64_t StepSums::dropped() const {
    std::uint64_t sum = 0;
    for (const MemberSums& member : members) sum += member.dropped;
    return sum;
}

double StepSums::mean_loss() const {
    double sum = 0;
    std::uint64_t count = 0;
    for (const MemberSums& member : members)
        if (member.rows > 0) {
            sum += member.mean_loss();
            ++count;
        }
    return ratio(sum, count);
}

}  // namespace millrace::train
