#include <algorithm>
#include <cmath>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using namespace dense_forward;
using tensor::DType;

using Block = ForwardProduct::Block;

/// Of the columns of a block over some rows: the means, and the sums of squared distances from them.
struct Moments {
    float mean[kMaxColumns], squares[kMaxColumns];
};

void take_moments(const Context& context, int rows, int cols, const float* z, std::int64_t stride, float* mean,
                  float* squares) noexcept {
    context.simd.column_sums(rows, cols, z, stride, mean);
    for (int i = 0; i < cols; ++i) mean[i] /= static_cast<float>(rows);
    context.simd.column_squares(rows, cols, z, stride, mean, squares);
}

/// What follows the product: norm, activation and dropout of a block of columns, for dense_forward and batch_apply.
class Finish {
public:
    Finish(Context& context, const Bound& bound) : context_(context), b_(bound), p_(bound.params<DenseParams>()) {}

    /// `z`: the product, without the bias; `batch`: its moments over all rows, where they are needed.
    void run(const Block& block, const float* z, std::int64_t stride, const Moments& batch) noexcept {
        ColumnPass pass{};
        pass.rows = block.rows;
        pass.cols = block.cols;
        pass.x = z;
        pass.x_stride = stride;
        if (b_[saved].present()) {
            pass.saved = b_[saved].at<float>(block.member, block.group, block.row) + block.col;
            pass.saved_stride = b_[saved].stride_row;
        }
        pass.y = b_[y].at<float>(block.member, block.group, block.row) + block.col;
        pass.y_stride = b_[y].stride_row;
        pass.activation = static_cast<std::uint8_t>(p_.activation);
        pass.keep_normalized = p_.norm == Norm::batch_train;
        float shift[kMaxColumns], scale[kMaxColumns];
        pass.shift = vector(bias, block);
        if (p_.norm != Norm::none) {
            p_.norm == Norm::batch_train ? batch_statistics(block, batch, scale) : running_statistics(block, shift, scale);
            pass.shift = p_.norm == Norm::batch_train ? batch.mean : shift;
            pass.scale = scale;
            pass.gamma = vector(gamma, block);
            pass.beta = vector(beta, block);
        }
        set_dropout(pass, p_, b_[state], b_[y], {block.member, block.group, block.row, block.col});
        const bool nothing_left = pass.shift == nullptr && pass.activation == 0 && pass.threshold == 0 && pass.y == z;
        if (!nothing_left) context_.simd.column_pass(pass);
    }

private:
    [[nodiscard]] const float* vector(int slot, const Block& block) const {
        return b_[slot].present() ? b_[slot].at<float>(block.member, block.group) + block.col : nullptr;
    }

    // The bias moves the mean and leaves the normalised value alone, so the sums run over the bare product.
    void batch_statistics(const Block& block, const Moments& batch, float* scale) noexcept {
        const auto n = static_cast<float>(block.rows);
        const float* offset = vector(bias, block);
        float* mean_out = b_[running_mean].at<float>(block.member, block.group) + block.col;
        float* var_out = b_[running_var].at<float>(block.member, block.group) + block.col;
        float* inv_out = b_[inv_std].at<float>(block.member, block.group) + block.col;
        const float keep = 1.0f - p_.momentum;
        for (int i = 0; i < block.cols; ++i) {
            const float variance = batch.squares[i] / n;
            const float unbiased = block.rows > 1 ? batch.squares[i] / (n - 1) : variance;
            scale[i] = 1.0f / std::sqrt(variance + p_.eps);
            inv_out[i] = scale[i];
            const float moved = batch.mean[i] + (offset != nullptr ? offset[i] : 0.0f);
            if (!std::isfinite(moved) || !std::isfinite(unbiased)) continue;
            mean_out[i] = keep * mean_out[i] + p_.momentum * moved;
            var_out[i] = keep * var_out[i] + p_.momentum * unbiased;
        }
    }

    void running_statistics(const Block& block, float* shift, float* scale) noexcept {
        const float *mean = vector(running_mean, block), *variance = vector(running_var, block), *offset = vector(bias, block);
        for (int i = 0; i < block.cols; ++i) {
            shift[i] = mean[i] - (offset != nullptr ? offset[i] : 0.0f);
            scale[i] = 1.0f / std::sqrt(variance[i] + p_.eps);
        }
    }

    Context& context_;
    Bound b_;
    DenseParams p_;
};

/// A dense layer; each block of columns is finished right after its product.
class DenseForward {
public:
    DenseForward(Context& context, const Bound& bound)
        : context_(context),
          out_(bound[bound[saved].present() ? saved : y]),
          batch_(bound.params<DenseParams>().norm == Norm::batch_train),
          product_(context, bound[x], bound[w], !batch_),
          finish_(context, bound) {}

    void operator()() noexcept {
        product_.pack();
        context_.pool.for_each_if(product_.parallel(), product_.blocks(), [this](int index, int worker) {
            const Block block = product_.block(index);
            float* z = out_.at<float>(block.member, block.group, block.row) + block.col;
            product_.run(block, z, out_.stride_row, worker);
            Moments batch;
            if (batch_) take_moments(context_, block.rows, block.cols, z, out_.stride_row, batch.mean, batch.squares);
            finish_.run(block, z, out_.stride_row, batch);
        });
    }

private:
    Context& context_;
    tensor::Operand out_;  ///< where the product goes
    bool batch_;
    ForwardProduct product_;
    Finish finish_;
};

/// Of all rows of a block of columns from those of the chunks.
Moments joined_moments(const tensor::Operand& chunks, const Block& block) noexcept {
    Moments all{};
    for (int c = 0; c < chunks.rows; ++c) {
        const float* mean = chunks.at<float>(block.member, block.group, c) + block.col;
        const float* squares = mean + chunks.cols / 2;
        const auto before = static_cast<float>(c * kMomentRows),
                   together = static_cast<float>(std::min((c + 1) * kMomentRows, block.rows));
        const float share = (together - before) / together;
        for (int i = 0; i < block.cols; ++i) {
            const float apart = mean[i] - all.mean[i];
            all.mean[i] += apart * share;
            all.squares[i] += squares[i] + apart * apart * before * share;
        }
    }
    return all;
}

}  // namespace

KernelResult make_dense_forward(Context& context, const Bound& bound) { return make_kernel(DenseForward(context, bound)); }

KernelResult make_batch_moments(Context& context, const Bound& bound) {
    return make_kernel([&context, z = bound[batch_moments::z], moments = bound[batch_moments::moments]]() noexcept {
        for_each_columns(context, z, [&](int member, int group, int col, int cols) {
            for (int c = 0; c < moments.rows; ++c) {
                const int row = c * kMomentRows, rows = std::min(kMomentRows, z.rows - row);
                float* mean = moments.at<float>(member, group, c) + col;
                take_moments(context, rows, cols, z.at<float>(member, group, row) + col, z.stride_row, mean, mean + z.cols);
            }
        });
    });
}

KernelResult make_batch_apply(Context& context, const Bound& bound) {
    const tensor::Operand &z = bound[batch_apply::z], &moments = bound[batch_apply::moments];
    return make_kernel([&context, z, moments, finish = Finish(context, bound)]() mutable noexcept {
        for_each_columns(context, z, [&](int member, int group, int col, int cols) {
            const Block block{member, group, 0, z.rows, col, cols};
            finish.run(block, z.at<float>(member, group) + col, z.stride_row, joined_moments(moments, block));
        });
    });
}

}  // namespace millrace::ops::cpu
