#include "models/collective/ops/diversity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/kernels.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

using Slot = cosine_diversity::Slot;
using tensor::Operand;

constexpr double kSmallest = 1e-12;

/// In four sums, so that an addition need not wait for the one before it.
template <class T>
double dot(int n, const T* a, const T* b) {
    std::array<double, 4> sums{};
    for (int i = 0; i < n; ++i) sums[static_cast<std::size_t>(i % 4)] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Penalty and gradient, one member per call, in double; T is what the slots are stored in.
template <class T>
class Diversity {
public:
    explicit Diversity(const Bound& bound)
        : b_(bound),
          p_(bound.params<DiversityParams>()),
          norms_(static_cast<std::size_t>(bound[Slot::o].k) * bound[Slot::o].g * bound[Slot::o].rows),
          signs_(static_cast<std::size_t>(bound[Slot::o].k) * bound[Slot::o].g * bound[Slot::o].g) {}

    void member(int member) noexcept {
        const Operand& in = b_[Slot::o];
        for (int i = 0; i < in.g; ++i)
            for (int row = 0; row < in.rows; ++row)
                norm(member, i, row) = std::sqrt(dot(in.cols, in.at<T>(member, i, row), in.at<T>(member, i, row)));
        double total = 0;
        for (int i = 0; i < in.g; ++i) {
            for (int j = i + 1; j < in.g; ++j) total += pair(member, i, j);
        }
        const int pairs = in.g * (in.g - 1) / 2;
        MemberState& s = state_of(b_[Slot::state], member);
        const double penalty = pairs > 0 && in.rows > 0 ? p_.weight * total / pairs : 0;
        s.penalty += p_.scale * penalty;
        if (!b_[Slot::dout].present()) return;
        const double share =
            pairs > 0 ? p_.scale * p_.weight / pairs / (in.rows * p_.temperature) * static_cast<double>(s.loss_scale) : 0;
        for (int i = 0; i < in.g; ++i) {
            for (int row = 0; row < in.rows; ++row) gradient(member, i, row, share);
        }
    }

private:
    [[nodiscard]] double& norm(int member, int group, int row) {
        const Operand& in = b_[Slot::o];
        return norms_[(static_cast<std::size_t>(member) * in.g + group) * in.rows + row];
    }
    [[nodiscard]] double& sign(int member, int i, int j) {
        const int g = b_[Slot::o].g;
        return signs_[(static_cast<std::size_t>(member) * g + i) * g + j];
    }

    double cosine(int member, int i, int j, int row) {
        const Operand& in = b_[Slot::o];
        return dot(in.cols, in.at<T>(member, i, row), in.at<T>(member, j, row)) /
               (std::max(norm(member, i, row), kSmallest) * std::max(norm(member, j, row), kSmallest));
    }

    double pair(int member, int i, int j) {
        double sum = 0;
        for (int row = 0; row < b_[Slot::o].rows; ++row) sum += cosine(member, i, j, row);
        const double c = sum / b_[Slot::o].rows / p_.temperature;
        sign(member, i, j) = sign(member, j, i) = c > 0 ? 1 : c < 0 ? -1 : 0;
        return std::abs(c);
    }

    void gradient(int member, int i, int row, double share) {
        const Operand& in = b_[Slot::o];
        const T* own = in.at<T>(member, i, row);
        T* out = b_[Slot::dout].at<T>(member, i, row);
        if (!b_.accumulates(Slot::dout)) std::fill_n(out, in.cols, T{});
        const double length = norm(member, i, row), clamped = std::max(length, kSmallest);
        for (int j = 0; j < in.g; ++j) {
            if (j == i || sign(member, i, j) == 0) continue;
            const T* other = in.at<T>(member, j, row);
            const double factor = share * sign(member, i, j) / clamped;
            const double across = factor / std::max(norm(member, j, row), kSmallest);
            const double along =
                length > kSmallest ? factor * cosine(member, i, j, row) / length : 0;  // a clamped length is constant
            for (int c = 0; c < in.cols; ++c)
                out[c] += static_cast<T>(across * static_cast<double>(other[c]) - along * static_cast<double>(own[c]));
        }
    }

    Bound b_;
    DiversityParams p_;
    std::vector<double> norms_, signs_;  ///< made with the kernel
};

}  // namespace

MILLRACE_OPERATOR(cosine_diversity, Phase::loss, {"o"}, {"state", update}, {"dout", add});

void cosine_diversity::check(Checker& c) {
    c.require({o}, real, c.shape(o)).allow({dout}, real, c.shape(o)).state(state, c.shape(o).k);
    c.that(c.params<DiversityParams>().temperature != 0, "temperature must not be 0");
}

namespace ref {

void run_cosine_diversity(const Bound& bound) {
    Diversity<double> work(bound);
    for (int m = 0; m < bound[Slot::o].k; ++m) work.member(m);
}

}  // namespace ref

namespace cpu {

KernelResult make_cosine_diversity(Context& context, const Bound& bound) {
    return make_kernel([&context, work = Diversity<float>(bound), members = bound[Slot::o].k]() mutable noexcept {
        context.pool.for_each_if(members > 1, members, [&](int member, int) { work.member(member); });
    });
}

}  // namespace cpu

}  // namespace millrace::ops
