#include "ops/cpu/kernel.h"
#include "ops/cpu/random_mask.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using namespace dense_backward;
using tensor::DType;

class DenseBackward {
public:
    DenseBackward(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          p_(bound.params<DenseParams>()),
          parallel_(bound[dz].count() >= kParallelElements / 2),
          columns_(bound[dz].cols, 16, parallel_ ? 2 * context.pool.threads() : 1, kMaxColumns) {}

    void operator()() noexcept {
        const tensor::Operand& out = b_[dz];
        context_.pool.for_each_if(parallel_, out.k * out.g * columns_.count, [&](int index, int) {
            const int block = index % columns_.count, batch = index / columns_.count;
            columns(batch / out.g, batch % out.g, columns_.begin(block), columns_.end(block) - columns_.begin(block));
        });
    }

private:
    void columns(int member, int group, int col, int cols) noexcept {
        const tensor::Operand& out = b_[dz];
        float sum[kMaxColumns], sum_saved[kMaxColumns];
        ColumnBackward pass{};
        pass.rows = out.rows;
        pass.cols = cols;
        pass.dy = b_[dy].at<float>(member, group) + col;
        pass.dy_stride = b_[dy].stride_row;
        pass.du = out.at<float>(member, group) + col;
        pass.du_stride = out.stride_row;
        pass.activation = static_cast<std::uint8_t>(p_.activation);
        pass.sum = sum;
        if (b_[saved].present()) {
            pass.saved = b_[saved].at<float>(member, group) + col;
            pass.saved_stride = b_[saved].stride_row;
        }
        set_dropout(pass, p_, b_[state], out, {member, group, 0, col});
        const bool normed = p_.norm == Norm::batch_train;
        if (normed) {
            pass.gamma = b_[gamma].at<float>(member, group) + col;
            pass.beta = b_[beta].at<float>(member, group) + col;
            pass.sum_saved = sum_saved;
        }
        context_.simd.column_backward(pass);
        if (!normed) return put(dbias, member, group, col, cols, sum);
        put(dbeta, member, group, col, cols, sum);
        put(dgamma, member, group, col, cols, sum_saved);
        const float* inv = b_[inv_std].at<float>(member, group) + col;
        float factor[kMaxColumns];
        for (int i = 0; i < cols; ++i) {
            factor[i] = pass.gamma[i] * inv[i];
            sum[i] /= static_cast<float>(out.rows);
            sum_saved[i] /= static_cast<float>(out.rows);
        }
        context_.simd.column_norm_backward(out.rows, cols, pass.saved, pass.saved_stride, factor, sum, sum_saved, pass.du,
                                           pass.du_stride);
    }

    void put(int slot, int member, int group, int col, int cols, const float* values) noexcept {
        if (!b_[slot].present()) return;
        float* out = b_[slot].at<float>(member, group) + col;
        const bool add = b_.accumulates(slot);
        for (int i = 0; i < cols; ++i) out[i] = add ? out[i] + values[i] : values[i];
    }

    Context& context_;
    Bound b_;
    DenseParams p_;
    bool parallel_;
    Blocks columns_;
};

}  // namespace

KernelResult make_dense_backward(Context& context, const Bound& bound) {
    const auto& p = bound.params<DenseParams>();
    const tensor::Operand& out = bound[dz];
    Checker check(bound);
    check.require(dz, DType::f32, out.k, out.g, out.rows, out.cols).like(dy, dz).allow_like(saved, dz);
    for (const int slot : {dgamma, dbeta, dbias}) check.allow(slot, DType::f32, out.k, out.g, 1, out.cols);
    check.that(p.norm != Norm::batch_eval, "a norm with running statistics has no backward pass");
    if (p.norm == Norm::batch_train) {
        for (const int slot : {gamma, beta, inv_std}) check.require(slot, DType::f32, out.k, out.g, 1, out.cols);
    }
    if (p.norm != Norm::none || p.activation != Activation::none) check.like(saved, dz);
    check.that(p.dropout >= 0 && p.dropout < 1, "dropout must be in [0, 1)");
    if (p.dropout > 0) check.state(state, out.k);
    MILLRACE_TRY(check.status());
    return make_kernel(DenseBackward(context, bound));
}

}  // namespace millrace::ops::cpu
