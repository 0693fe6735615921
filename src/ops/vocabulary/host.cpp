// The reference, a row after the other, and the CPU backend, blocks of rows on the products of its dense layers.
#include <algorithm>
#include <optional>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/host_kernels.h"
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
    for (const int slot : {at::losses, at::dx, at::dweight, at::dbias}) {
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
            const FoundToken found = token_loss(host::PlainLoops{}, bound[at::weight].rows, logits.data(), id, rows.share,
                                                trains ? logits.data() : nullptr);
            *bound[at::losses].at<double>(m, 0, row) = found.loss;
            for (int v = 0; trains && v < bound[at::weight].rows; ++v)
                add_gradients(bound, m, row, v, logits[static_cast<std::size_t>(v)]);
            return found;
        });
    }
}

}  // namespace ref

namespace cpu {
namespace {

/// A matrix in the scratch of the backend.
struct Matrix {
    Operand all;

    Matrix(int rows, int cols) {
        static float no_place_yet;
        const std::int64_t size = std::int64_t{rows} * cols;
        all = {&no_place_yet, tensor::DType::f32, 1, 1, rows, cols, size, size, cols};
    }
    [[nodiscard]] std::size_t floats() const { return static_cast<std::size_t>(all.stride_k); }
    [[nodiscard]] float* row(int r) const { return all.at<float>(0, 0, r); }
};

/// Member after member the rows that predict a token are gathered in blocks: product, loss of each row in the memory of its
/// logits, products of the gradients. In rows that a block has too many, x and gradients are zeros.
class VocabularyLoss {
public:
    VocabularyLoss(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          x_(std::min(kRows, bound[at::x].rows), bound[at::x].cols),
          dx_(bound[at::dx].present() ? x_.all.rows : 0, x_.all.cols),
          logits_(x_.all.rows, bound[at::weight].rows),
          found_(static_cast<std::size_t>(bound[at::x].rows)) {
        const Scratch::Wanted others = context.scratch.want({});
        rows_.reserve(found_.size());
        products_.reserve(static_cast<std::size_t>(bound[at::x].k));
        for (int m = 0; m < bound[at::x].k; ++m) {
            Products& made = products_.emplace_back(ForwardProduct(context, x_.all, of_member(at::weight, m), true));
            if (bound[at::dx].present()) made.to_x.emplace(context, logits_.all, of_member(at::weight, m), dx_.all, false, false);
            if (bound[at::dweight].present())
                made.to_weight.emplace(context, logits_.all, x_.all, of_member(at::dweight, m), true, true);
        }
        const Scratch::Wanted products = context.scratch.want(others);
        behind_ = products.shared;
        context.scratch.reserve_worker(products.worker);
        context.scratch.reserve_shared(behind_ + x_.floats() + dx_.floats() + logits_.floats());
    }

    void operator()() noexcept {
        place();
        for (member_ = 0; member_ < b_[at::x].k; ++member_) {
            clear_outputs<float>(b_, member_);
            const TokenRows<float> rows(b_, kTokenSlots, member_);
            list_rows(rows);
            for (begin_ = 0; begin_ < rows_.size(); begin_ += static_cast<std::size_t>(x_.all.rows)) run_block();
            rows.add_up([&](int row, int) { return found_[static_cast<std::size_t>(row)]; });
        }
    }

private:
    static constexpr int kRows = 512;  ///< of a block
    struct Row {
        std::int32_t row, id;
    };
    /// Of one member.
    struct Products {
        ForwardProduct logits;
        std::optional<GradProduct> to_x = {}, to_weight = {};
    };

    [[nodiscard]] Operand of_member(int slot, int m) const {
        Operand part = b_[slot];
        part.data = part.at<float>(m);
        part.k = 1;
        return part;
    }
    [[nodiscard]] const Products& products() const { return products_[static_cast<std::size_t>(member_)]; }

    /// Scratch may have moved when another program was prepared.
    void place() noexcept {
        float* to = context_.scratch.shared() + behind_;
        if (x_.all.data == to) return;
        x_.all.data = to;
        dx_.all.data = to + x_.floats();
        logits_.all.data = to + x_.floats() + dx_.floats();
        for (Products& of : products_) {
            of.logits.move(x_.all);
            const auto m = static_cast<int>(&of - products_.data());
            if (of.to_x) of.to_x->move(logits_.all, of_member(at::weight, m), dx_.all);
            if (of.to_weight) of.to_weight->move(logits_.all, x_.all, of_member(at::dweight, m));
        }
    }

    void list_rows(const TokenRows<float>& rows) noexcept {
        share_ = rows.share;
        rows_.clear();
        for (int s = 0; s < b_[at::lengths].rows; ++s)
            for (int t = 0; t < rows.tokens(s); ++t) rows_.push_back({rows.row(s, t), rows.id(s, t)});
    }

    /// body(row of the block, what it is; null: nothing) for all rows of the block.
    template <class Body>
    void for_each_row(Body&& body) noexcept {
        context_.pool.for_each_if(products().logits.parallel(), x_.all.rows, [&](int r, int) {
            const std::size_t place = begin_ + static_cast<std::size_t>(r);
            body(r, place < rows_.size() ? &rows_[place] : nullptr);
        });
    }

    void run_block() noexcept {
        for_each_row([&](int r, const Row* row) {
            if (row != nullptr)
                std::copy_n(b_[at::x].at<float>(member_, 0, row->row), x_.all.cols, x_.row(r));
            else
                std::fill_n(x_.row(r), x_.all.cols, 0.0f);
        });
        const Products& by = products();
        const ForwardProduct& product = by.logits;
        product.pack();
        context_.pool.for_each_if(product.parallel(), product.blocks(), [&](int index, int worker) {
            const ForwardProduct::Block block = product.block(index);
            product.run(block, logits_.row(block.row) + block.col, logits_.all.stride_row, worker);
        });
        for_each_row([&](int r, const Row* row) { find_loss(logits_.row(r), row); });
        if (b_[at::dbias].present()) add_bias_gradient();
        if (by.to_weight) by.to_weight->run();
        if (!by.to_x) return;
        by.to_x->run();
        for_each_row([&](int r, const Row* row) {
            if (row == nullptr) return;
            context_.simd.add_rows(dx_.all.cols, dx_.row(r), nullptr, b_[at::dx].at<float>(member_, 0, row->row), true);
        });
    }

    /// Logits without their bias become gradients.
    void find_loss(float* logits, const Row* row) noexcept {
        const int vocabulary = logits_.all.cols;
        if (row == nullptr) {
            std::fill_n(logits, vocabulary, 0.0f);
            return;
        }
        if (b_[at::bias].present()) context_.simd.add_rows(vocabulary, logits, b_[at::bias].at<float>(member_), logits, false);
        const FoundToken found =
            token_loss(context_.simd, vocabulary, logits, row->id, share_, wants_gradients(b_) ? logits : nullptr);
        *b_[at::losses].at<float>(member_, 0, row->row) = static_cast<float>(found.loss);
        found_[static_cast<std::size_t>(row->row)] = found;
    }

    void add_bias_gradient() noexcept {
        for_each_columns(context_, logits_.all, [&](int, int, int col, int cols) {
            float sums[kMaxColumns];
            context_.simd.column_sums(logits_.all.rows, cols, logits_.row(0) + col, logits_.all.stride_row, sums);
            context_.simd.add_rows(cols, sums, nullptr, b_[at::dbias].at<float>(member_) + col, true);
        });
    }

    Context& context_;
    Bound b_;
    Matrix x_, dx_, logits_;  ///< of a block, in the shared scratch
    std::size_t behind_ = 0;  ///< floats that the products use
    std::vector<Products> products_;
    std::vector<FoundToken> found_;  ///< by row of x
    // Of the member under way.
    int member_ = 0;
    double share_ = 0;
    std::vector<Row> rows_;  ///< that predict a token
    std::size_t begin_ = 0;  ///< the first of the block
};

}  // namespace

KernelResult make_vocabulary_loss(Context& context, const Bound& bound) { return make_kernel(VocabularyLoss(context, bound)); }

}  // namespace cpu
}  // namespace millrace::ops
