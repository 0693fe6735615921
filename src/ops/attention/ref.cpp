#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/ref/kernels.h"
#include "ops/text/sequences.h"

namespace millrace::ops::ref {
namespace {

/// One head of one sequence: pointers to its columns, position 0.
struct Head {
    const double *q, *k, *v;
    std::int64_t stride;
    int width, filled, prefix;
    bool causal;

    /// Positions that position i sees are the first so many.
    [[nodiscard]] int seen(int i) const { return causal ? std::min(filled, std::max(i + 1, prefix)) : filled; }
    [[nodiscard]] double score(int i, int j) const {
        double sum = 0;
        for (int d = 0; d < width; ++d) sum += q[i * stride + d] * k[j * stride + d];
        return sum / std::sqrt(static_cast<double>(width));
    }
};

template <class Body>
void for_each_head(const AttentionParams& params, const tensor::Operand& qkv, const tensor::Operand& lengths, Body&& body) {
    const int positions = positions_of(qkv, lengths), all = qkv.cols / 3, width = all / params.heads;
    for (int m = 0; m < qkv.k; ++m)
        for (int b = 0; b < lengths.rows; ++b)
            for (int h = 0; h < params.heads && positions > 0; ++h) {
                const double* first = qkv.at<double>(m, 0, std::int64_t{b} * positions) + h * width;
                const int filled = params.prefix + tokens_of(lengths, m, b, positions - params.prefix);
                body(m, b * positions, positions, h,
                     Head{first, first + all, first + 2 * all, qkv.stride_row, width, filled, params.prefix, params.causal});
            }
}

}  // namespace

void run_attention_forward(const Bound& bound) {
    namespace at = attention_forward;
    const auto &out = bound[at::out], &logsumexp = bound[at::logsumexp];
    for_each_head(bound.params<AttentionParams>(), bound[at::qkv], bound[at::lengths],
                  [&](int m, int row, int positions, int h, const Head& head) {
                      for (int i = 0; i < positions; ++i) {
                          double* to = out.at<double>(m, 0, row + i) + h * head.width;
                          double& logarithm = logsumexp.at<double>(m, 0, row + i)[h];
                          std::fill_n(to, head.width, 0.0);
                          logarithm = 0;
                          if (i >= head.filled) continue;
                          std::vector<double> scores(static_cast<std::size_t>(head.seen(i)));
                          for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = head.score(i, static_cast<int>(j));
                          const double top = *std::max_element(scores.begin(), scores.end());
                          double sum = 0;
                          for (const double score : scores) sum += std::exp(score - top);
                          logarithm = top + std::log(sum);
                          for (int j = 0; j < head.seen(i); ++j) {
                              const double weight = std::exp(scores[static_cast<std::size_t>(j)] - logarithm);
                              for (int d = 0; d < head.width; ++d) to[d] += weight * head.v[j * head.stride + d];
                          }
                      }
                  });
}

void run_attention_backward(const Bound& bound) {
    namespace at = attention_backward;
    const auto &dout = bound[at::dout], &logsumexp = bound[at::logsumexp], &out = bound[at::out], &dqkv = bound[at::dqkv];
    for (int m = 0; m < dqkv.k; ++m)
        for (int row = 0; row < dqkv.rows; ++row) std::fill_n(dqkv.at<double>(m, 0, row), dqkv.cols, 0.0);
    for_each_head(
        bound.params<AttentionParams>(), bound[at::qkv], bound[at::lengths], [&](int m, int row, int, int h, const Head& head) {
            const int all = dqkv.cols / 3;
            const double scale = 1 / std::sqrt(static_cast<double>(head.width));
            const auto gradient = [&](int i, int part) { return dqkv.at<double>(m, 0, row + i) + part * all + h * head.width; };
            for (int i = 0; i < head.filled; ++i) {
                const double *up = dout.at<double>(m, 0, row + i) + h * head.width,
                             *result = out.at<double>(m, 0, row + i) + h * head.width;
                const auto weight = [&](int j) { return std::exp(head.score(i, j) - logsumexp.at<double>(m, 0, row + i)[h]); };
                const auto dweight = [&](int j) {
                    double sum = 0;
                    for (int d = 0; d < head.width; ++d) sum += up[d] * head.v[j * head.stride + d];
                    return sum;
                };
                double delta = 0;
                for (int d = 0; d < head.width; ++d) delta += up[d] * result[d];
                for (int j = 0; j < head.seen(i); ++j) {
                    const double share = weight(j), dscore = share * (dweight(j) - delta) * scale;
                    for (int d = 0; d < head.width; ++d) {
                        gradient(i, 0)[d] += dscore * head.k[j * head.stride + d];
                        gradient(j, 1)[d] += dscore * head.q[i * head.stride + d];
                        gradient(j, 2)[d] += share * up[d];
                    }
                }
            }
        });
}

}  // namespace millrace::ops::ref
