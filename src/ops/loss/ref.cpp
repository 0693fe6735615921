#include <algorithm>
#include <cmath>

#include "ops/loss/loss.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

struct RowLoss {
    double largest = 0, denominator = 0, loss = 0;
    bool correct = false, valid = false;
};

RowLoss row_loss(const double* logits, int classes, std::int32_t label) {
    RowLoss row;
    int best = 0;
    for (int c = 1; c < classes; ++c)
        if (logits[c] > logits[best]) best = c;
    row.valid = label >= 0 && label < classes;
    if (!row.valid) return row;
    row.largest = logits[best];
    for (int c = 0; c < classes; ++c) row.denominator += std::exp(logits[c] - row.largest);
    row.loss = std::log(row.denominator) - (logits[label] - row.largest);
    row.correct = best == label;
    return row;
}

}  // namespace

void run_cross_entropy(const Bound& bound) {
    namespace at = cross_entropy;
    const auto &logits = bound[at::logits], &labels = bound[at::labels], &dlogits = bound[at::dlogits];
    for (int m = 0; m < logits.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        const double share = bound.params<LossParams>().scale / logits.rows * state.loss_scale;
        double loss = 0;
        for (int b = 0; b < logits.rows; ++b) {
            const double* values = logits.at<double>(m, 0, b);
            const std::int32_t label = *labels.at<std::int32_t>(m, 0, b);
            const RowLoss row = row_loss(values, logits.cols, label);
            loss += row.loss;
            if (row.correct) ++state.correct;
            if (!row.valid || !std::isfinite(row.loss)) state.nonfinite = 1;
            if (!dlogits.present()) continue;
            for (int c = 0; c < logits.cols; ++c) {
                const double softmax = std::exp(values[c] - row.largest) / row.denominator;
                dlogits.at<double>(m, 0, b)[c] = row.valid ? (softmax - (c == label ? 1 : 0)) * share : 0;
            }
        }
        state.loss += loss;
        state.rows += static_cast<std::uint32_t>(logits.rows);
    }
}

void run_loss_total(const Bound& bound) {
    namespace at = loss_total;
    const auto &values = bound[at::values], &weights = bound[at::weights];
    for (int m = 0; m < values.k; ++m) {
        double sum = 0;
        for (int b = 0; b < values.rows; ++b) {
            const std::int32_t value = *values.at<std::int32_t>(m, 0, b);
            if (!weights.present())
                sum += std::clamp(value, 0, bound.params<LossTotalParams>().most);
            else if (value >= 0 && value < weights.cols)
                sum += weights.at<double>(m)[value];
        }
        bound[at::total].at<double>(m)[0] = sum;
        bound[at::total].at<double>(m)[1] = values.rows;
    }
}

void run_mse(const Bound& bound) {
    namespace at = mse;
    const auto &prediction = bound[at::prediction], &target = bound[at::target], &gradient = bound[at::dprediction];
    const auto& params = bound.params<LossParams>();
    const double share = params.scale / prediction.rows / prediction.cols;
    for (int m = 0; m < prediction.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        double loss = 0;
        for (int b = 0; b < prediction.rows; ++b) {
            double squares = 0;
            for (int c = 0; c < prediction.cols; ++c) {
                const double difference = prediction.at<double>(m, 0, b)[c] - target.at<double>(m, 0, b)[c];
                squares += difference * difference;
                if (gradient.present()) gradient.at<double>(m, 0, b)[c] = 2 * difference * share * state.loss_scale;
            }
            loss += squares / prediction.cols;
        }
        if (!params.as_loss) {
            state.penalty += prediction.rows > 0 ? params.scale * loss / prediction.rows : 0;
            continue;
        }
        state.loss += loss;
        state.rows += static_cast<std::uint32_t>(prediction.rows);
    }
}

}  // namespace millrace::ops::ref
