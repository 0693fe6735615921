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

void run_weighted_cross_entropy(const Bound& bound) {
    namespace at = weighted_cross_entropy;
    const auto& params = bound.params<WeightedLossParams>();
    const auto &logits = bound[at::logits], &labels = bound[at::labels], &dlogits = bound[at::dlogits];
    for (int m = 0; m < logits.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        const double* weights = bound[at::weights].at<double>(m);
        const double gamma = *bound[at::gamma].at<double>(m);
        const auto label_of = [&](int b) { return *labels.at<std::int32_t>(m, 0, b); };
        double divisor = params.by_rows ? logits.rows : 0;
        for (int b = 0; b < logits.rows && !params.by_rows; ++b)
            if (label_of(b) >= 0 && label_of(b) < logits.cols) divisor += weights[label_of(b)];
        const LossTotal over = total_of<double>(bound[at::total], m, divisor, logits.rows);
        const double share = over.divisor > 0 ? 1 / over.divisor : 0;
        double loss = 0;
        for (int b = 0; b < logits.rows; ++b) {
            const double* values = logits.at<double>(m, 0, b);
            const RowLoss row = row_loss(values, logits.cols, label_of(b));
            if (row.correct) ++state.correct;
            const double weight = row.valid ? weights[label_of(b)] : 0, p = std::exp(-row.loss), q = std::max(1 - p, 1e-8);
            const double term = weight * std::pow(q, gamma) * row.loss;
            loss += term;
            if (!row.valid || !std::isfinite(term)) state.nonfinite = 1;
            const double slope = weight * (std::pow(q, gamma) + gamma * std::pow(q, gamma - 1) * p * row.loss);
            for (int c = 0; dlogits.present() && c < logits.cols; ++c) {
                const double softmax = std::exp(values[c] - row.largest) / row.denominator;
                dlogits.at<double>(m, 0, b)[c] =
                    row.valid ? (softmax - (c == label_of(b) ? 1 : 0)) * slope * params.scale * share * state.loss_scale : 0;
            }
        }
        state.loss += loss * share * over.rows;
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

void run_binary_cross_entropy(const Bound& bound) {
    namespace at = binary_cross_entropy;
    const auto& params = bound.params<BinaryLossParams>();
    const auto &logit = bound[at::logit], &dlogit = bound[at::dlogit];
    for (int m = 0; m < logit.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        const double share = params.scale * *bound[at::weight].at<double>(m) / logit.rows;
        double sum = 0;
        for (int b = 0; b < logit.rows; ++b) {
            const double l = *logit.at<double>(m, 0, b);
            const double wanted = *bound[at::labels].at<std::int32_t>(m, 0, b) == params.positive ? 1 : 0;
            sum += std::max(l, 0.0) + std::log1p(std::exp(-std::abs(l))) - wanted * l;
            if (dlogit.present()) *dlogit.at<double>(m, 0, b) = (1 / (1 + std::exp(-l)) - wanted) * share * state.loss_scale;
        }
        if (logit.rows > 0) state.penalty += sum * share;
        if (!std::isfinite(sum)) state.nonfinite = 1;
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

namespace {

constexpr double kSmallestNorm = 1e-12;

double dot(const double* left, const double* right, int count) {
    double sum = 0;
    for (int c = 0; c < count; ++c) sum += left[c] * right[c];
    return sum;
}

double clamped_norm(const double* row, int count) { return std::max(std::sqrt(dot(row, row, count)), kSmallestNorm); }

double cosine(const double* left, const double* right, int count) {
    return dot(left, right, count) / (clamped_norm(left, count) * clamped_norm(right, count));
}

/// gradient += factor * d cosine(row, other) / d row. Below the smallest norm the denominator is a constant.
void add_cosine_gradient(double* gradient, const double* row, const double* other, int count, double factor) {
    const double norm = clamped_norm(row, count), other_norm = clamped_norm(other, count);
    const double along = norm > kSmallestNorm ? cosine(row, other, count) / (norm * norm) : 0;
    for (int c = 0; c < count; ++c) gradient[c] += factor * (other[c] / (norm * other_norm) - along * row[c]);
}

}  // namespace

void run_cosine_diversity(const Bound& bound) {
    namespace at = cosine_diversity;
    const auto& params = bound.params<DiversityParams>();
    const auto &o = bound[at::o], &dout = bound[at::dout];
    if (dout.present() && !bound.accumulates(at::dout))
        for_each_matrix(dout, [&](int m, int g) {
            for (int b = 0; b < dout.rows; ++b) std::fill_n(dout.at<double>(m, g, b), dout.cols, 0.0);
        });
    const int pairs = o.g * (o.g - 1) / 2;
    if (pairs == 0) return;
    const double weight = params.scale * params.weight / pairs;
    for (int m = 0; m < o.k; ++m) {
        MemberState& state = state_of(bound[at::state], m);
        double penalty = 0;
        for (int i = 0; i < o.g; ++i)
            for (int j = i + 1; j < o.g; ++j) {
                double sum = 0;
                for (int b = 0; b < o.rows; ++b) sum += cosine(o.at<double>(m, i, b), o.at<double>(m, j, b), o.cols);
                const double mean = sum / o.rows / params.temperature;
                penalty += std::fabs(mean) * weight;
                if (!dout.present() || mean == 0) continue;
                const double factor = (mean > 0 ? 1 : -1) * weight / o.rows / params.temperature * state.loss_scale;
                for (int b = 0; b < o.rows; ++b) {
                    const double *left = o.at<double>(m, i, b), *right = o.at<double>(m, j, b);
                    add_cosine_gradient(dout.at<double>(m, i, b), left, right, o.cols, factor);
                    add_cosine_gradient(dout.at<double>(m, j, b), right, left, o.cols, factor);
                }
            }
        state.penalty += penalty;
    }
}

}  // namespace millrace::ops::ref
