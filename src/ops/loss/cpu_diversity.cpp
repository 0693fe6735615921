#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/loss/loss.h"

namespace millrace::ops::cpu {
namespace {

using namespace cosine_diversity;
using tensor::DType;
using tensor::Operand;

constexpr double kSmallest = 1e-12;

/// Penalty and gradient, one member per call; norms and pair signs live in memory planned with the kernel.
class Diversity {
public:
    Diversity(const SimdKernels& simd, const Bound& bound)
        : simd_(simd),
          b_(bound),
          p_(bound.params<DiversityParams>()),
          norms_(static_cast<std::size_t>(bound[o].k) * bound[o].g * bound[o].rows),
          signs_(static_cast<std::size_t>(bound[o].k) * bound[o].g * bound[o].g) {}

    void member(int member) noexcept {
        const Operand& in = b_[o];
        measure(member);
        double total = 0;
        for (int i = 0; i < in.g; ++i) {
            for (int j = i + 1; j < in.g; ++j) total += pair(member, i, j);
        }
        const int pairs = in.g * (in.g - 1) / 2;
        MemberState& s = state_of(b_[state], member);
        const double penalty = pairs > 0 && in.rows > 0 ? p_.weight * total / pairs : 0;
        s.penalty += p_.scale * penalty;
        if (!b_[dout].present()) return;
        const double share =
            pairs > 0 ? p_.scale * p_.weight / pairs / (in.rows * p_.temperature) * static_cast<double>(s.loss_scale) : 0;
        for (int i = 0; i < in.g; ++i) {
            for (int row = 0; row < in.rows; ++row) gradient(member, i, row, share);
        }
    }

private:
    [[nodiscard]] double& norm(int member, int group, int row) {
        const Operand& in = b_[o];
        return norms_[(static_cast<std::size_t>(member) * in.g + group) * in.rows + row];
    }
    [[nodiscard]] double& sign(int member, int i, int j) {
        const int g = b_[o].g;
        return signs_[(static_cast<std::size_t>(member) * g + i) * g + j];
    }

    void measure(int member) {
        const Operand& in = b_[o];
        for (int i = 0; i < in.g; ++i) {
            for (int row = 0; row < in.rows; ++row) {
                const float* value = in.at<float>(member, i, row);
                norm(member, i, row) = std::sqrt(simd_.dot(in.cols, value, value));
            }
        }
    }

    double cosine(int member, int i, int j, int row) {
        const Operand& in = b_[o];
        return simd_.dot(in.cols, in.at<float>(member, i, row), in.at<float>(member, j, row)) /
               (std::max(norm(member, i, row), kSmallest) * std::max(norm(member, j, row), kSmallest));
    }

    double pair(int member, int i, int j) {
        double sum = 0;
        for (int row = 0; row < b_[o].rows; ++row) sum += cosine(member, i, j, row);
        const double c = sum / b_[o].rows / p_.temperature;
        sign(member, i, j) = sign(member, j, i) = c > 0 ? 1 : c < 0 ? -1 : 0;
        return std::abs(c);
    }

    void gradient(int member, int i, int row, double share) {
        const Operand& in = b_[o];
        const float* own = in.at<float>(member, i, row);
        float* out = b_[dout].at<float>(member, i, row);
        const bool add = b_.accumulates(dout);
        if (!add) std::fill_n(out, in.cols, 0.0f);
        const double length = norm(member, i, row), clamped = std::max(length, kSmallest);
        for (int j = 0; j < in.g; ++j) {
            if (j == i || sign(member, i, j) == 0) continue;
            const double factor = share * sign(member, i, j) / clamped;
            const double across = factor / std::max(norm(member, j, row), kSmallest);
            const double along =
                length > kSmallest ? factor * cosine(member, i, j, row) / length : 0;  // a clamped length is constant
            simd_.add_difference(in.cols, across, in.at<float>(member, j, row), along, own, out);
        }
    }

    const SimdKernels& simd_;
    Bound b_;
    DiversityParams p_;
    std::vector<double> norms_, signs_;
};

}  // namespace

KernelResult make_cosine_diversity(Context& context, const Bound& bound) {
    const Operand& in = bound[o];
    return make_kernel([&context, work = Diversity(context.simd, bound), members = in.k]() mutable noexcept {
        context.pool.for_each_if(members > 1, members, [&](int member, int) { work.member(member); });
    });
}

}  // namespace millrace::ops::cpu
