// The reference, a row after the other, and the CPU backend, blocks of rows on the products of its dense layers.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/ref/kernels.h"
#include "ops/text/token_loss.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops {
namespace {

using tensor::Operand;
namespace at = vocabulary_loss;

constexpr TokenSlots kTokenSlots = {at::x, at::ids, at::lengths, at::state, at::tally, at::total};

bool wants_gradients(const Bound& b) { return b[at::dx].present() || b[at::dweight].present() || b[at::dbias].present(); }

/// Zeros for what is added to.
template <class T>
void clear_outputs(const Bound& b, int member) {
    for (const int slot : {at::logsumexp, at::dx, at::dweight, at::dbias}) {
        const Operand& out = b[slot];
        if (!out.present() || b.accumulates(slot)) continue;
        for (int row = 0; row < out.rows; ++row) std::fill_n(out.at<T>(member, 0, row), out.cols, T{});
    }
}

}  // namespace

namespace ref {
namespace {

double logit(const Bound& bound, int member, int row, int entry) {
    const double *x = bound[at::x].at<double>(member, 0, row), *w = bound[at::weight].at<double>(member, 0, entry);
    double sum = bound[at::bias].present() ? bound[at::bias].at<double>(member)[entry] : 0;
    for (int c = 0; c < bound[at::x].cols; ++c) sum += x[c] * w[c];
    return sum;
}

/// Adds the gradients of one row, where `gradient` is that of its logit `entry`.
void add_gradients(const Bound& bound, int member, int row, int entry, double gradient) {
    const double *x = bound[at::x].at<double>(member, 0, row), *w = bound[at::weight].at<double>(member, 0, entry);
    for (int c = 0; c < bound[at::x].cols; ++c) {
        if (bound[at::dx].present()) bound[at::dx].at<double>(member, 0, row)[c] += gradient * w[c];
        if (bound[at::dweight].present()) bound[at::dweight].at<double>(member, 0, entry)[c] += gradient * x[c];
    }
    if (bound[at::dbias].present()) bound[at::dbias].at<double>(member)[entry] += gradient;
}

}  // namespace

void run_vocabulary_loss(const Bound& bound) {
    const bool trains = wants_gradients(bound);
    std::vector<double> logits(static_cast<std::size_t>(bound[at::weight].rows));
    for (int m = 0; m < bound[at::x].k; ++m) {
        clear_outputs<double>(bound, m);
        const TokenRows<double> rows(bound, kTokenSlots, m);
        rows.add_up([&](int row, std::int32_t id) {
            for (int v = 0; double& value : logits) value = logit(bound, m, row, v++);
            const FoundToken found = token_loss(PlainRows{}, bound[at::weight].rows, logits.data(), id, rows.share,
                                                trains ? logits.data() : nullptr, bound[at::logsumexp].at<double>(m, 0, row));
            for (int v = 0; trains && v < bound[at::weight].rows; ++v)
                add_gradients(bound, m, row, v, logits[static_cast<std::size_t>(v)]);
            return found;
        });
    }
}

}  // namespace ref

namespace cpu {
namespace {

/// A matrix of each member.
struct Matrices {
    std::unique_ptr<float[]> memory;
    Operand all;

    Matrices(int k, int rows, int cols) {
        const std::int64_t size = std::int64_t{rows} * cols;
        memory = std::make_unique<float[]>(static_cast<std::size_t>(k * size));
        all = {memory.get(), tensor::DType::f32, k, 1, rows, cols, size, size, cols};
    }
};

/// Rows that predict a token are gathered in blocks, those of all members side by side: product, loss of each row in the memory
/// of its logits, products of the gradients. Where a member has fewer rows than the block, x and gradients are zeros.
class VocabularyLoss {
public:
    VocabularyLoss(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          x_(bound[at::x].k, std::min(kRows, bound[at::x].rows), bound[at::x].cols),
          dx_(x_.all.k, bound[at::dx].present() ? x_.all.rows : 0, x_.all.cols),
          logits_(x_.all.k, x_.all.rows, bound[at::weight].rows),
          product_(context, x_.all, bound[at::weight], true),
          members_(static_cast<std::size_t>(x_.all.k)) {
        for (Member& member : members_) {
            member.rows.reserve(static_cast<std::size_t>(bound[at::x].rows));
            member.found.resize(static_cast<std::size_t>(bound[at::x].rows));
        }
        if (bound[at::dx].present()) to_x_.emplace(context, logits_.all, bound[at::weight], dx_.all, false, false);
        if (bound[at::dweight].present()) to_weight_.emplace(context, logits_.all, x_.all, bound[at::dweight], true, true);
    }

    void operator()() noexcept {
        std::size_t most = 0;
        for (int m = 0; m < x_.all.k; ++m) {
            clear_outputs<float>(b_, m);
            list_rows(m);
            most = std::max(most, member(m).rows.size());
        }
        for (begin_ = 0; begin_ < most; begin_ += static_cast<std::size_t>(x_.all.rows)) run_block();
        for (int m = 0; m < x_.all.k; ++m)
            TokenRows<float>(b_, kTokenSlots, m).add_up([&](int row, int) {
                return member(m).found[static_cast<std::size_t>(row)];
            });
    }

private:
    static constexpr int kRows = 512;  ///< of a block
    struct Row {
        std::int32_t row, id;
    };
    struct Member {
        std::vector<Row> rows;          ///< that predict a token
        std::vector<FoundToken> found;  ///< by row of x
        double share = 0;
    };

    [[nodiscard]] Member& member(int m) { return members_[static_cast<std::size_t>(m)]; }

    void list_rows(int m) noexcept {
        const TokenRows<float> rows(b_, kTokenSlots, m);
        member(m).share = rows.share;
        member(m).rows.clear();
        for (int s = 0; s < b_[at::lengths].rows; ++s)
            for (int t = 0; t < rows.tokens(s); ++t) member(m).rows.push_back({rows.row(s, t), rows.id(s, t)});
    }

    /// body(member, row of the block, what it is; null: nothing) for all rows of the block.
    template <class Body>
    void for_each_row(Body&& body) noexcept {
        context_.pool.for_each_if(product_.parallel(), x_.all.k * x_.all.rows, [&](int task, int) {
            const int m = task / x_.all.rows, r = task % x_.all.rows;
            const std::size_t place = begin_ + static_cast<std::size_t>(r);
            body(m, r, place < member(m).rows.size() ? &member(m).rows[place] : nullptr);
        });
    }

    void run_block() noexcept {
        for_each_row([&](int m, int r, const Row* row) {
            float* to = x_.all.at<float>(m, 0, r);
            if (row != nullptr)
                std::copy_n(b_[at::x].at<float>(m, 0, row->row), x_.all.cols, to);
            else
                std::fill_n(to, x_.all.cols, 0.0f);
        });
        product_.pack();
        context_.pool.for_each_if(product_.parallel(), product_.blocks(), [this](int index, int worker) {
            const ForwardProduct::Block block = product_.block(index);
            product_.run(block, logits_.all.at<float>(block.member, 0, block.row) + block.col, logits_.all.stride_row, worker);
        });
        for_each_row([&](int m, int r, const Row* row) { find_loss(m, logits_.all.at<float>(m, 0, r), row); });
        if (b_[at::dbias].present()) add_bias_gradient();
        if (to_weight_) to_weight_->run();
        if (!to_x_) return;
        to_x_->run();
        for_each_row([&](int m, int r, const Row* row) {
            if (row == nullptr) return;
            context_.simd.add_rows(dx_.all.cols, dx_.all.at<float>(m, 0, r), nullptr, b_[at::dx].at<float>(m, 0, row->row), true);
        });
    }

    /// Logits without their bias become gradients.
    void find_loss(int m, float* logits, const Row* row) noexcept {
        const int vocabulary = logits_.all.cols;
        if (row == nullptr) {
            std::fill_n(logits, vocabulary, 0.0f);
            return;
        }
        if (b_[at::bias].present()) context_.simd.add_rows(vocabulary, logits, b_[at::bias].at<float>(m), logits, false);
        member(m).found[static_cast<std::size_t>(row->row)] =
            token_loss(context_.simd, vocabulary, logits, row->id, member(m).share, wants_gradients(b_) ? logits : nullptr,
                       b_[at::logsumexp].at<float>(m, 0, row->row));
    }

    void add_bias_gradient() noexcept {
        for_each_columns(context_, logits_.all, [&](int m, int, int col, int cols) {
            float sums[kMaxColumns], *to = b_[at::dbias].at<float>(m) + col;
            context_.simd.column_sums(logits_.all.rows, cols, logits_.all.at<float>(m) + col, logits_.all.stride_row, sums);
            context_.simd.add_rows(cols, sums, nullptr, to, true);
        });
    }

    Context& context_;
    Bound b_;
    Matrices x_, dx_, logits_;  ///< of a block
    ForwardProduct product_;
    std::optional<GradProduct> to_x_, to_weight_;
    std::vector<Member> members_;
    std::size_t begin_ = 0;  ///< of the block: which of a member's rows is its first
};

}  // namespace

KernelResult make_vocabulary_loss(Context& context, const Bound& bound) { return make_kernel(VocabularyLoss(context, bound)); }

}  // namespace cpu
}  // namespace millrace::ops
