#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

/// The operands of either direction; what a direction does not have is absent.
struct Heads {
    AttentionParams params;
    Operand qkv, lengths, logsumexp, out, dout, dqkv;

    [[nodiscard]] int positions() const { return positions_of(qkv, lengths); }
    [[nodiscard]] int width() const { return qkv.cols / 3 / params.heads; }
    [[nodiscard]] AttentionHead head(int member, int sequence, int h) const {
        const std::int64_t row = std::int64_t{sequence} * positions();
        const int all = qkv.cols / 3, column = h * width();
        const auto at = [&](const Operand& o) { return o.present() ? o.at<float>(member, 0, row) + column : nullptr; };
        AttentionHead head{};
        head.width = width();
        head.positions = positions();
        head.filled = params.prefix + tokens_of(lengths, member, sequence, head.positions - params.prefix);
        head.prefix = params.prefix;
        head.causal = params.causal;
        head.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head.width)));
        head.q = at(qkv);
        head.k = head.q + all;
        head.v = head.k + all;
        head.stride = qkv.stride_row;
        head.logsumexp = logsumexp.at<float>(member, 0, row) + h;
        head.logsumexp_stride = logsumexp.stride_row;
        head.out = at(out);
        head.out_stride = out.stride_row;
        head.dout = at(dout);
        head.dout_stride = dout.stride_row;
        head.gradient_stride = dqkv.stride_row;
        if (!dqkv.present()) return head;
        head.dq = at(dqkv);
        head.dk = head.dq + all;
        head.dv = head.dk + all;
        return head;
    }
};

KernelResult make_heads(Context& context, const Heads& heads, void (*one)(const AttentionHead&)) {
    context.scratch.reserve_worker(attention_floats(context.simd, heads.positions(), heads.width()));
    return make_kernel([&context, heads, one]() noexcept {
        const std::int64_t work = 2 * heads.qkv.count() / 3 * heads.positions();
        const int each = heads.params.heads, per_member = heads.lengths.rows * each;
        if (heads.positions() == 0) return;
        context.pool.for_each_if(work >= kParallelProducts, heads.qkv.k * per_member, [&](int task, int worker) {
            AttentionHead head = heads.head(task / per_member, task % per_member / each, task % each);
            head.scratch = context.scratch.worker(worker);
            one(head);
        });
    });
}

}  // namespace

KernelResult make_attention_forward(Context& context, const Bound& b) {
    using namespace attention_forward;
    return make_heads(context, {b.params<AttentionParams>(), b[qkv], b[lengths], b[logsumexp], b[out], {}, {}},
                      context.simd.attention_forward);
}

KernelResult make_attention_backward(Context& context, const Bound& b) {
    using namespace attention_backward;
    return make_heads(context, {b.params<AttentionParams>(), b[qkv], b[lengths], b[logsumexp], b[out], b[dout], b[dqkv]},
                      context.simd.attention_backward);
}

}  // namespace millrace::ops::cpu
