#include <algorithm>

#include "ops/conv/cpu_product.h"
#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

constexpr int kPieces = 32;  ///< of a batch, each with weight gradients of its own: fixed, so that threads leave no trace

/// Drops elements of a row of y, with their places; `factors` is for one per element.
void drop(const SimdKernels& simd, const ConvParams& p, const Operand& state, const Operand& y, int member, int row,
          float* factors, std::uint8_t* places) {
    std::fill_n(factors, y.cols, 1.0f);
    for (int col = 0; col < y.cols; col += kMaxColumns) {
        ColumnPass pass{};
        pass.rows = 1;
        pass.cols = std::min(kMaxColumns, y.cols - col);
        pass.x = pass.y = factors + col;
        set_dropout(pass, p, state, y, {member, 0, row, col});
        simd.column_pass(pass);
    }
    float* values = y.at<float>(member, 0, row);
    for (int col = 0; col < y.cols; ++col) values[col] *= factors[col];
    for (int col = 0; col < y.cols && places != nullptr; ++col) places[col] = factors[col] == 0 ? kNothingChosen : places[col];
}

void transpose_bytes(int rows, int cols, const std::uint8_t* in, std::uint8_t* out) {
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) out[c * rows + r] = in[r * cols + c];
}

/// Floats that hold so many bytes.
std::size_t floats_for_bytes(std::int64_t bytes) { return static_cast<std::size_t>((bytes + 3) / 4); }

class ConvForward {
public:
    ConvForward(Context& context, const Bound& bound)
        : context_(context), b_(bound), p_(bound.params<ConvParams>()), product_(p_, context.simd, p_.in, p_.out) {
        context.scratch.reserve_shared(static_cast<std::size_t>(b_[conv_forward::w].k) * product_.packed_floats());
        context.scratch.reserve_worker(product_.padded_floats() + product_.result_floats() + ordered_floats());
    }

    void operator()() noexcept {
        using namespace conv_forward;
        const Operand &in = b_[x], &out = b_[y];
        for (int member = 0; member < out.k; ++member)
            product_.pack_weights(b_[w].at<float>(member), b_[w].stride_row, packed(member), false);
        const bool parallel = std::int64_t{out.k} * out.rows * product_.multiplications() >= kParallelProducts;
        context_.pool.for_each_if(parallel, out.k * out.rows, [&](int task, int worker) {
            const int member = task / out.rows, row = task % out.rows;
            float* padded = context_.scratch.worker(worker);
            float* u = padded + product_.padded_floats();
            product_.pad(in.at<float>(member, 0, row), padded);
            product_.run(padded, packed(member), u);
            finish(member, row, u, u + product_.result_floats());
        });
    }

private:
    [[nodiscard]] float* packed(int member) const {
        return context_.scratch.shared() + static_cast<std::size_t>(member) * product_.packed_floats();
    }
    [[nodiscard]] std::size_t ordered_floats() const {
        const bool ordered = p_.channels_first || p_.dropout > 0;
        return ordered ? static_cast<std::size_t>(p_.out_columns()) + floats_for_bytes(p_.out_columns()) : 0;
    }

    /// Pooling, relu, dropout; `ordered` is for a row with channels last, and for dropout's factors.
    void finish(int member, int row, const float* u, float* ordered) noexcept {
        using namespace conv_forward;
        const int positions = p_.pooled_h() * p_.pooled_w();
        float* out = b_[y].at<float>(member, 0, row);
        std::uint8_t* places = b_[chosen].present() ? b_[chosen].at<std::uint8_t>(member, 0, row) : nullptr;
        float* values = p_.channels_first ? ordered : out;
        auto* bytes =
            p_.channels_first && places != nullptr ? reinterpret_cast<std::uint8_t*>(ordered + p_.out_columns()) : places;
        const float* shift = b_[bias].present() ? b_[bias].at<float>(member) : nullptr;
        const PoolWindow window{
            p_.out, p_.pool_h, p_.pool_w, product_.row_pitch() * product_.result_stride(), product_.result_stride(), p_.relu};
        for (int at = 0; at < positions; ++at) {
            const std::int64_t first = std::int64_t{at / p_.pooled_w()} * p_.pool_h * product_.row_pitch() +
                                       std::int64_t{at % p_.pooled_w()} * p_.pool_w;
            context_.simd.pool_forward(window, u + first * product_.result_stride(), shift, values + std::int64_t{at} * p_.out,
                                       bytes != nullptr ? bytes + std::int64_t{at} * p_.out : nullptr);
        }
        if (p_.channels_first) {
            context_.simd.transpose(positions, p_.out, values, p_.out, out, positions);
            if (places != nullptr) transpose_bytes(positions, p_.out, bytes, places);
        }
        if (p_.dropout > 0) drop(context_.simd, p_, b_[state], b_[y], member, row, ordered, places);
    }

    Context& context_;
    Bound b_;
    ConvParams p_;
    ConvProduct product_;
};

class ConvBackward {
public:
    ConvBackward(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          p_(bound.params<ConvParams>()),
          forward_(p_, context.simd, p_.in, p_.out),
          back_(p_, context.simd, p_.out, p_.in),
          pieces_(bound[conv_backward::dy].rows, 1, kPieces) {
        const auto members = static_cast<std::size_t>(b_[conv_backward::w].k);
        context.scratch.reserve_shared(members * (weights_floats() + static_cast<std::size_t>(pieces_.count) * piece_floats()));
        context.scratch.reserve_worker(back_.padded_floats() + std::max(back_.result_floats(), ordered_floats()) +
                                       forward_.padded_floats() + forward_.gradient_floats());
    }

    void operator()() noexcept {
        using namespace conv_backward;
        const Operand& w_in = b_[w];
        if (wants_dx())
            for (int member = 0; member < w_in.k; ++member)
                back_.pack_weights(w_in.at<float>(member), w_in.stride_row, packed(member), true);
        const bool parallel = std::int64_t{w_in.k} * b_[dy].rows * 2 * forward_.multiplications() >= kParallelProducts;
        context_.pool.for_each_if(parallel, w_in.k * pieces_.count, [&](int task, int worker) {
            const int member = task / pieces_.count, piece = task % pieces_.count;
            float* sums = piece_sums(member, piece);
            std::fill_n(sums, piece_floats(), 0.0f);
            for (int row = pieces_.begin(piece); row < pieces_.end(piece); ++row) one_row(member, row, worker, sums);
        });
        context_.pool.for_each_if(parallel, w_in.k * p_.out, [&](int task, int) { add_pieces(task / p_.out, task % p_.out); });
    }

private:
    [[nodiscard]] bool wants_dx() const { return b_[conv_backward::dx].present(); }
    [[nodiscard]] std::size_t weights_floats() const { return wants_dx() ? back_.packed_floats() : 0; }
    /// Weight gradients [taps * in, out] of a piece, and its bias gradients behind them.
    [[nodiscard]] std::size_t piece_floats() const {
        return forward_.weight_sums_floats() + static_cast<std::size_t>(forward_.result_stride());
    }
    [[nodiscard]] std::size_t ordered_floats() const {
        return 2 * static_cast<std::size_t>(p_.out_columns()) + floats_for_bytes(p_.out_columns());
    }
    [[nodiscard]] float* packed(int member) const {
        return context_.scratch.shared() + static_cast<std::size_t>(member) * weights_floats();
    }
    [[nodiscard]] float* piece_sums(int member, int piece) const {
        const auto number =
            static_cast<std::size_t>(member) * static_cast<std::size_t>(pieces_.count) + static_cast<std::size_t>(piece);
        return context_.scratch.shared() + static_cast<std::size_t>(b_[conv_backward::w].k) * weights_floats() +
               number * piece_floats();
    }

    void one_row(int member, int row, int worker, float* sums) noexcept {
        using namespace conv_backward;
        float* dz = context_.scratch.worker(worker);
        float* result = dz + back_.padded_floats();
        float* padded = result + std::max(back_.result_floats(), ordered_floats());
        spread(member, row, dz, result);
        forward_.pad(b_[x].at<float>(member, 0, row), padded);
        // The map of dz inside its padding has the rows of the product.
        const float* inside = dz + back_.first_inside();
        forward_.add_weight_gradients(padded, inside, sums, padded + forward_.padded_floats());
        float* bias_sums = sums + forward_.weight_sums_floats();
        for (int r = 0; r < forward_.rows(); ++r)
            for (int o = 0; o < p_.out; ++o) bias_sums[o] += inside[std::int64_t{r} * p_.out + o];
        if (!wants_dx()) return;
        back_.run(dz, packed(member), result);
        float* out = b_[dx].at<float>(member, 0, row);
        for (int h = 0; h < p_.height; ++h)
            for (int v = 0; v < p_.width; ++v)
                context_.simd.add_rows(p_.in, result + (std::int64_t{h} * back_.row_pitch() + v) * back_.result_stride(), nullptr,
                                       out + (std::int64_t{h} * p_.width + v) * p_.in, b_.accumulates(dx));
    }

    /// From dy to dz with zeros around it; `ordered` is for a scaled row and one with channels last.
    void spread(int member, int row, float* dz, float* ordered) noexcept {
        using namespace conv_backward;
        const int positions = p_.pooled_h() * p_.pooled_w();
        const float* values = b_[dy].at<float>(member, 0, row);
        const std::uint8_t* places = p_.chooses() ? b_[chosen].at<std::uint8_t>(member, 0, row) : nullptr;
        if (p_.dropout > 0) {
            const float scale = dropout_scale(dropout_of(state_of(b_[state], member), p_.dropout));
            std::transform(values, values + p_.out_columns(), ordered, [scale](float value) { return scale * value; });
            values = ordered;
        }
        if (p_.channels_first) {
            float* last = ordered + p_.out_columns();
            context_.simd.transpose(p_.out, positions, values, positions, last, p_.out);
            values = last;
            if (places != nullptr) {
                auto* bytes = reinterpret_cast<std::uint8_t*>(last + p_.out_columns());
                transpose_bytes(p_.out, positions, places, bytes);
                places = bytes;
            }
        }
        std::fill_n(dz, back_.padded_floats(), 0.0f);
        float* inside = dz + back_.first_inside();
        const PoolWindow window{p_.out, p_.pool_h, p_.pool_w, std::ptrdiff_t{back_.row_pitch()} * p_.out, p_.out, p_.relu};
        for (int at = 0; at < positions; ++at) {
            const std::int64_t first =
                std::int64_t{at / p_.pooled_w()} * p_.pool_h * back_.row_pitch() + std::int64_t{at % p_.pooled_w()} * p_.pool_w;
            const std::int64_t from = std::int64_t{at} * p_.out;
            if (places != nullptr)
                context_.simd.pool_backward(window, values + from, places + from, inside + first * p_.out);
            else
                std::copy_n(values + from, p_.out, inside + first * p_.out);
        }
    }

    /// Channel o of dw and dbias from the sums of the pieces.
    void add_pieces(int member, int o) noexcept {
        using namespace conv_backward;
        float* out = b_[dw].at<float>(member, 0, o);
        if (!b_.accumulates(dw)) std::fill_n(out, p_.weights(), 0.0f);
        forward_.for_each_weight([&](int tap, std::int64_t at) {
            float sum = 0;
            for (int piece = 0; piece < pieces_.count; ++piece)
                sum += piece_sums(member, piece)[at * forward_.result_stride() + o];
            out[tap] += sum;
        });
        if (!b_[dbias].present()) return;
        float sum = 0;
        for (int piece = 0; piece < pieces_.count; ++piece)
            sum += piece_sums(member, piece)[forward_.weight_sums_floats() + static_cast<std::size_t>(o)];
        float& target = b_[dbias].at<float>(member)[o];
        target = b_.accumulates(dbias) ? target + sum : sum;
    }

    Context& context_;
    Bound b_;
    ConvParams p_;
    ConvProduct forward_, back_;
    Blocks pieces_;
};

}  // namespace

KernelResult make_conv_forward(Context& context, const Bound& bound) { return make_kernel(ConvForward(context, bound)); }

KernelResult make_conv_backward(Context& context, const Bound& bound) { return make_kernel(ConvBackward(context, bound)); }

}  // namespace millrace::ops::cpu
