#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"
#include "ops/vocabulary/logit_loops.h"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;
namespace at = vocabulary_loss;

constexpr int kRows = 128;      ///< of a block: its logits stay in the cache, and every block goes once through dweight
constexpr int kSlices = 32;     ///< of the vocabulary, about: the tasks of a block
constexpr int kSliceUnit = 64;  ///< entries; the sums must not depend on a table's tile

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }
std::size_t size_of(std::int64_t floats) { return static_cast<std::size_t>(floats); }

/// Blocks of rows after another; a block's logits [entry][row] lie in slices of the vocabulary. Each slice is computed, then
/// turned into gradients in place and multiplied, by one task. Tasks write disjoint memory; the partial dx of the slices
/// are added in order, so threads leave no trace. Rows that predict nothing are left out.
class VocabularyLoss {
public:
    VocabularyLoss(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          loops_(MILLRACE_ISA_PICK(vocabulary_loops, context.simd.vector_bytes)),
          params_(bound.params<TokenLossParams>()),
          positions_(positions_of(bound[at::x], bound[at::lengths])),
          cols_(bound[at::x].cols),
          padded_cols_(round_up(cols_, context.simd.nr)),
          slices_(bound[at::weight].rows, kSliceUnit, kSlices),
          parallel_(std::int64_t{std::min(kRows, bound[at::x].rows)} * bound[at::weight].count() / bound[at::weight].k >=
                    kParallelProducts) {
        const SimdKernels& simd = context.simd;
        const auto rows = size_of(bound[at::x].rows), slices = size_of(slices_.count);
        found_.resize(rows);
        rows_.reserve(rows);
        gathered_.resize(size_of(std::int64_t{kRows} * cols_));
        x_across_.resize(size_of(std::int64_t{kRows} * cols_));
        logits_.resize(slices * slice_floats());
        for (auto* values : {&top_, &sum_, &weight_}) values->resize(slices * kRows);
        best_.resize(slices * kRows);
        if (!trains()) return;
        x_along_.resize(size_of(std::int64_t{kRows} * padded_cols_));
        if (b_[at::dx].present()) partial_.resize(slices * partial_floats());
        context.scratch.reserve_worker(size_of(std::int64_t{slices_.block} * (padded_cols_ + simd.mr + 1)));
    }

    void operator()() noexcept {
        for (int member = 0; member < b_[at::x].k; ++member) run_member(member);
    }

private:
    /// A row of x that predicts a token of the vocabulary.
    struct Row {
        std::int32_t row, id;
    };

    [[nodiscard]] bool trains() const { return b_[at::dx].present() || b_[at::dweight].present() || b_[at::dbias].present(); }
    [[nodiscard]] std::size_t slice_floats() const { return size_of(std::int64_t{slices_.block + kMaxTileRows} * kRows); }
    [[nodiscard]] std::size_t partial_floats() const { return size_of(std::int64_t{kRows + kMaxTileRows} * padded_cols_); }
    [[nodiscard]] LogitSlice slice(int index) {
        return {slices_.end(index) - slices_.begin(index), round_up(count_, LogitSlice::kColumnLanes),
                logits_.data() + size_of(index) * slice_floats(), kRows};
    }
    template <class Body>
    void for_each_slice(Body&& body) noexcept {
        context_.pool.for_each_if(parallel_, slices_.count, body);
    }

    void run_member(int member) noexcept {
        list_rows(member);
        clear_rows(member);
        const int all = static_cast<int>(rows_.size());
        int begin = 0;
        do {  // once even without rows: the gradients of the weights become zeros
            block_ = rows_.data() + begin;
            count_ = std::min(kRows, all - begin);
            pack_rows(member);
            for_each_slice([&](int index, int) { compute(member, index); });
            conclude_rows(member);
            if (trains()) for_each_slice([&](int index, int worker) { differentiate(member, index, worker, begin > 0); });
            if (b_[at::dx].present()) add_partials(member);
            begin += kRows;
        } while (begin < all);
        conclude(member);
    }

    void list_rows(int member) noexcept {
        const Operand &ids = b_[at::ids], &lengths = b_[at::lengths];
        over_ = token_total<float>(b_[at::total], lengths, member, ids.cols);
        const auto scale = static_cast<double>(state_of(b_[at::state], member).loss_scale);
        share_ = over_.divisor > 0 ? params_.scale / over_.divisor * scale : 0;
        rows_.clear();
        for (int b = 0; b < lengths.rows; ++b)
            for (int t = 0; t < tokens_of(lengths, member, b, ids.cols); ++t) {
                const int row = b * positions_ + params_.first + t;
                const std::int32_t id = ids.at<std::int32_t>(member, 0, b)[t];
                const bool bad = id < 0 || id >= b_[at::weight].rows;
                found_[size_of(row)] = {0, false, bad};
                if (!bad) rows_.push_back({row, id});
            }
    }

    void clear_rows(int member) noexcept {
        const Operand &logsumexp = b_[at::logsumexp], &dx = b_[at::dx];
        for (int row = 0; row < logsumexp.rows; ++row) *logsumexp.at<float>(member, 0, row) = 0;
        if (!dx.present() || b_.accumulates(at::dx)) return;
        for (int row = 0; row < dx.rows; ++row) std::fill_n(dx.at<float>(member, 0, row), dx.cols, 0.0f);
    }

    /// The block's rows of x as panels [rows / nr][C][nr] and [C / nr][rows][nr].
    void pack_rows(int member) noexcept {
        const SimdKernels& simd = context_.simd;
        for (int r = 0; r < count_; ++r)
            std::copy_n(b_[at::x].at<float>(member, 0, block_[r].row), cols_, gathered_.data() + std::int64_t{r} * cols_);
        for (int r = 0; r < count_; r += simd.nr)
            simd.pack_transposed(cols_, gathered_.data() + std::int64_t{r} * cols_, cols_, std::min(simd.nr, count_ - r), simd.nr,
                                 x_across_.data() + std::int64_t{r} * cols_);
        for (int c = 0; trains() && c < cols_; c += simd.nr)
            simd.pack_rows(count_, gathered_.data() + c, cols_, std::min(simd.nr, cols_ - c), simd.nr,
                           x_along_.data() + std::int64_t{c} * kRows);
    }

    /// Logits of a slice as exponentials, with the largest, its entry and the sum of each row.
    void compute(int member, int index) noexcept {
        const SimdKernels& simd = context_.simd;
        const Operand& weight = b_[at::weight];
        const LogitSlice part = slice(index);
        const int begin = slices_.begin(index);
        for (int row = 0; row < count_; row += simd.nr)
            for (int k = 0; k < cols_; k += kDepth) {
                const float* x = x_across_.data() + std::int64_t{row} * cols_ + std::int64_t{k} * simd.nr;
                for (int v = 0; v < part.entries; v += simd.mr)
                    simd.tile_rows(std::min(kDepth, cols_ - k), weight.at<float>(member, 0, begin + v) + k, weight.stride_row,
                                   std::min(simd.mr, part.entries - v), x, part.s + v * part.ld + row, part.ld, k > 0);
            }
        const std::size_t first = size_of(index) * kRows;
        loops_.largest(part, b_[at::bias].present() ? b_[at::bias].at<float>(member) + begin : nullptr, top_.data() + first,
                       best_.data() + first);
        for (int r = 0; r < count_; ++r)
            if (const int entry = block_[r].id - begin; entry >= 0 && entry < part.entries)
                target_[r] = part.s[entry * part.ld + r];
        loops_.exponentials(part, top_.data() + first, sum_.data() + first);
    }

    /// Loss and logsumexp of the block's rows, and what turns the exponentials of each slice into gradients.
    void conclude_rows(int member) noexcept {
        for (int r = 0; r < count_; ++r) {
            std::size_t best = 0;
            for (int s = 1; s < slices_.count; ++s)
                if (top_[size_of(s) * kRows + size_of(r)] > top_[best * kRows + size_of(r)]) best = size_of(s);
            const auto top = static_cast<double>(top_[best * kRows + size_of(r)]);
            double sum = 0;
            for (int s = 0; s < slices_.count; ++s) {
                const std::size_t place = size_of(s) * kRows + size_of(r);
                const double weight =
                    std::isinf(top_[place]) && top_[place] < 0 ? 0 : std::exp(static_cast<double>(top_[place]) - top);
                weight_[place] = static_cast<float>(weight);
                sum += weight * static_cast<double>(sum_[place]);
            }
            const double loss = std::log(sum) - (static_cast<double>(target_[r]) - top);
            const bool right = slices_.begin(static_cast<int>(best)) + best_[best * kRows + size_of(r)] == block_[r].id;
            found_[size_of(block_[r].row)] = {loss, right, !std::isfinite(loss)};
            *b_[at::logsumexp].at<float>(member, 0, block_[r].row) = static_cast<float>(top + std::log(sum));
            for (int s = 0; s < slices_.count; ++s) weight_[size_of(s) * kRows + size_of(r)] *= static_cast<float>(share_ / sum);
        }
        for (int s = 0; s < slices_.count; ++s)
            std::fill_n(weight_.data() + size_of(s) * kRows + count_, round_up(count_, LogitSlice::kColumnLanes) - count_, 0.0f);
    }

    void differentiate(int member, int index, int worker, bool later) noexcept {
        const LogitSlice part = slice(index);
        const int begin = slices_.begin(index);
        float *sums = context_.scratch.worker(worker), *panels = sums + slices_.block;
        loops_.weigh(part, weight_.data() + size_of(index) * kRows, sums);
        for (int r = 0; r < count_; ++r)
            if (const int entry = block_[r].id - begin; entry >= 0 && entry < part.entries) {
                part.s[entry * part.ld + r] -= static_cast<float>(share_);
                sums[entry] -= static_cast<float>(share_);
            }
        if (b_[at::dbias].present()) {
            float* to = b_[at::dbias].at<float>(member) + begin;
            const bool add = later || b_.accumulates(at::dbias);
            for (int v = 0; v < part.entries; ++v) to[v] = add ? to[v] + sums[v] : sums[v];
        }
        if (b_[at::dweight].present()) add_weight_gradient(member, part, begin, later || b_.accumulates(at::dweight));
        if (b_[at::dx].present())
            multiply_weights(member, part, begin, panels, partial_.data() + size_of(index) * partial_floats());
    }

    /// dweight of a slice (+) = gradients times the block's rows of x.
    void add_weight_gradient(int member, const LogitSlice& part, int begin, bool add) noexcept {
        const SimdKernels& simd = context_.simd;
        const Operand& dweight = b_[at::dweight];
        float edge[kMaxTileRows * kMaxTileColumns];
        for (int c = 0; c < cols_; c += simd.nr)
            for (int v = 0; v < part.entries; v += simd.mr) {
                const int rows = std::min(simd.mr, part.entries - v), columns = std::min(simd.nr, cols_ - c);
                const bool whole = rows == simd.mr && columns == simd.nr;
                float* to = dweight.at<float>(member, 0, begin + v) + c;
                simd.tile_rows(count_, part.s + v * part.ld, part.ld, rows, x_along_.data() + std::int64_t{c} * kRows,
                               whole ? to : edge, whole ? dweight.stride_row : simd.nr, whole && add);
                for (int i = 0; !whole && i < rows; ++i)
                    for (int j = 0; j < columns; ++j) {
                        float& value = to[i * dweight.stride_row + j];
                        value = add ? value + edge[i * simd.nr + j] : edge[i * simd.nr + j];
                    }
            }
    }

    /// out [rows][padded C] = the slice's gradients, transposed, times its weights. panels: a worker's scratch.
    void multiply_weights(int member, const LogitSlice& part, int begin, float* panels, float* out) noexcept {
        const SimdKernels& simd = context_.simd;
        const Operand& weight = b_[at::weight];
        float* left = panels + std::int64_t{slices_.block} * padded_cols_;
        for (int c = 0; c < cols_; c += simd.nr)
            simd.pack_rows(part.entries, weight.at<float>(member, 0, begin) + c, weight.stride_row, std::min(simd.nr, cols_ - c),
                           simd.nr, panels + std::int64_t{c} * part.entries);
        for (int r = 0; r < count_; r += simd.mr) {
            simd.pack_rows(part.entries, part.s + r, part.ld, std::min(simd.mr, count_ - r), simd.mr, left);
            for (int k = 0; k < part.entries; k += kDepth)
                for (int c = 0; c < cols_; c += simd.nr)
                    simd.tile_panels(std::min(kDepth, part.entries - k), left + std::int64_t{k} * simd.mr,
                                     panels + std::int64_t{c} * part.entries + std::int64_t{k} * simd.nr,
                                     out + std::int64_t{r} * padded_cols_ + c, padded_cols_, k > 0);
        }
    }

    void add_partials(int member) noexcept {
        context_.pool.for_each_if(parallel_, count_, [&](int r, int) {
            float* to = b_[at::dx].at<float>(member, 0, block_[r].row);
            for (int s = 0; s < slices_.count; ++s)
                context_.simd.add_rows(cols_,
                                       partial_.data() + size_of(s) * partial_floats() + size_of(r) * size_of(padded_cols_),
                                       nullptr, to, s > 0 || b_.accumulates(at::dx));
        });
    }

    void conclude(int member) noexcept {
        const Operand &lengths = b_[at::lengths], &to = b_[at::tally];
        TokenSums sums;
        for (int b = 0; b < lengths.rows; ++b)
            sums.add_sequence(tokens_of(lengths, member, b, b_[at::ids].cols),
                              [&](int t) { return found_[size_of(b * positions_ + params_.first + t)]; });
        sums.put(params_, lengths.rows, over_, state_of(b_[at::state], member), to.present() ? to.at<float>(member) : nullptr,
                 b_.accumulates(at::tally));
    }

    Context& context_;
    Bound b_;
    const VocabularyLoops& loops_;
    TokenLossParams params_;
    int positions_, cols_, padded_cols_;
    Blocks slices_;
    bool parallel_;
    // Of the member and block under way.
    double share_ = 0;
    LossTotal over_{};
    const Row* block_ = nullptr;
    int count_ = 0;
    float target_[kRows] = {};  ///< logits of the targets
    std::vector<Row> rows_;
    std::vector<FoundToken> found_;                     ///< by row of x
    std::vector<float> gathered_, x_across_, x_along_;  ///< rows of x, packed
    std::vector<float> logits_, top_, sum_, weight_;    ///< by slice
    std::vector<std::int32_t> best_;
    std::vector<float> partial_;  ///< of dx, by slice
};

}  // namespace

KernelResult make_vocabulary_loss(Context& context, const Bound& bound) { return make_kernel(VocabularyLoss(context, bound)); }

}  // namespace millrace::ops::cpu
