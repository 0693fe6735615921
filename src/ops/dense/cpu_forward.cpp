#include <cmath>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/cpu/random_mask.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using namespace dense_forward;
using tensor::DType;

/// Product, norm, activation and dropout of a dense layer; each block of columns is finished right after its product.
class DenseForward {
public:
    DenseForward(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          p_(bound.params<DenseParams>()),
          product_(context, bound[x], bound[w], p_.norm != Norm::batch_train) {}

    void operator()() noexcept {
        product_.pack();
        context_.pool.for_each_if(product_.parallel(), product_.blocks(), [this](int index, int worker) {
            const ForwardProduct::Block block = product_.block(index);
            const tensor::Operand& out = b_[product_slot()];
            float* c = out.at<float>(block.member, block.group, block.row) + block.col;
            product_.run(block, c, out.stride_row, worker);
            finish(block, c, out.stride_row);
        });
    }

private:
    [[nodiscard]] int product_slot() const { return b_[saved].present() ? saved : y; }

    [[nodiscard]] const float* vector(int slot, const ForwardProduct::Block& block) const {
        return b_[slot].present() ? b_[slot].at<float>(block.member, block.group) + block.col : nullptr;
    }

    void finish(const ForwardProduct::Block& block, const float* c, std::int64_t ldc) noexcept {
        ColumnPass pass{};
        pass.rows = block.rows;
        pass.cols = block.cols;
        pass.x = c;
        pass.x_stride = ldc;
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
            p_.norm == Norm::batch_train ? batch_statistics(block, c, ldc, shift, scale)
                                         : running_statistics(block, shift, scale);
            pass.shift = shift;
            pass.scale = scale;
            pass.gamma = vector(gamma, block);
            pass.beta = vector(beta, block);
        }
        set_dropout(pass, p_, b_[state], b_[y], {block.member, block.group, block.row, block.col});
        const bool nothing_left = pass.shift == nullptr && pass.activation == 0 && pass.threshold == 0 && pass.y == c;
        if (!nothing_left) context_.simd.column_pass(pass);
    }

    // The bias moves the mean and leaves the normalised value alone, so the sums run over the bare product.
    void batch_statistics(const ForwardProduct::Block& block, const float* c, std::int64_t ldc, float* mean,
                          float* scale) noexcept {
        float squares[kMaxColumns];
        const auto n = static_cast<float>(block.rows);
        context_.simd.column_sums(block.rows, block.cols, c, ldc, mean);
        for (int i = 0; i < block.cols; ++i) mean[i] /= n;
        context_.simd.column_squares(block.rows, block.cols, c, ldc, mean, squares);
        const float* offset = vector(bias, block);
        float* mean_out = b_[running_mean].at<float>(block.member, block.group) + block.col;
        float* var_out = b_[running_var].at<float>(block.member, block.group) + block.col;
        float* inv_out = b_[inv_std].at<float>(block.member, block.group) + block.col;
        const float keep = 1.0f - p_.momentum;
        for (int i = 0; i < block.cols; ++i) {
            const float variance = squares[i] / n;
            const float unbiased = block.rows > 1 ? squares[i] / (n - 1) : variance;
            scale[i] = 1.0f / std::sqrt(variance + p_.eps);
            inv_out[i] = scale[i];
            const float moved = mean[i] + (offset != nullptr ? offset[i] : 0.0f);
            if (!std::isfinite(moved) || !std::isfinite(unbiased)) continue;
            mean_out[i] = keep * mean_out[i] + p_.momentum * moved;
            var_out[i] = keep * var_out[i] + p_.momentum * unbiased;
        }
    }

    void running_statistics(const ForwardProduct::Block& block, float* shift, float* scale) noexcept {
        const float *mean = vector(running_mean, block), *variance = vector(running_var, block), *offset = vector(bias, block);
        for (int i = 0; i < block.cols; ++i) {
            shift[i] = mean[i] - (offset != nullptr ? offset[i] : 0.0f);
            scale[i] = 1.0f / std::sqrt(variance[i] + p_.eps);
        }
    }

    Context& context_;
    Bound b_;
    DenseParams p_;
    ForwardProduct product_;
};

}  // namespace

KernelResult make_dense_forward(Context& context, const Bound& bound) { return make_kernel(DenseForward(context, bound)); }

}  // namespace millrace::ops::cpu
