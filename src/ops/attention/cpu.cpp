#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

/// How the heads lie.
struct Heads {
    AttentionParams params;
    Operand qkv, lengths, logsumexp;
    int positions = 0, all = 0, width = 0;

    Heads(const Bound& bound, int qkv_slot, int lengths_slot, int logsumexp_slot)
        : params(bound.params<AttentionParams>()),
          qkv(bound[qkv_slot]),
          lengths(bound[lengths_slot]),
          logsumexp(bound[logsumexp_slot]) {
        positions = positions_of(qkv, lengths);
        all = qkv.cols / 3;
        width = all / params.heads;
    }
    [[nodiscard]] AttentionHead head(int member, int sequence, int h) const {
        AttentionHead head{};
        head.width = width;
        head.positions = positions;
        head.filled = params.prefix + tokens_of(lengths, member, sequence, positions - params.prefix);
        head.prefix = params.prefix;
        head.causal = params.causal;
        head.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
        head.q = qkv.at<float>(member, 0, std::int64_t{sequence} * positions) + h * width;
        head.k = head.q + all;
        head.v = head.k + all;
        head.stride = qkv.stride_row;
        head.logsumexp = logsumexp.at<float>(member, 0, std::int64_t{sequence} * positions) + h;
        head.logsumexp_stride = logsumexp.stride_row;
        return head;
    }
    /// body(head, member, row, column) for all of them: where the head's first position and column lie in values of C columns.
    template <class Body>
    void for_each(Context& context, Body&& body) const noexcept {
        const std::int64_t work = 2 * qkv.count() / 3 * positions;
        const int per_member = lengths.rows * params.heads;
        if (positions == 0) return;
        context.pool.for_each_if(work >= kParallelProducts, qkv.k * per_member, [&](int task, int worker) {
            const int member = task / per_member, sequence = task % per_member / params.heads, h = task % params.heads;
            AttentionHead one = head(member, sequence, h);
            one.scratch = context.scratch.worker(worker);
            body(one, member, std::int64_t{sequence} * positions, h * width);
        });
    }
};

}  // namespace

KernelResult make_attention_forward(Context& context, const Bound& bound) {
    namespace at = attention_forward;
    const Heads heads(bound, at::qkv, at::lengths, at::logsumexp);
    context.scratch.reserve_worker(attention_floats(context.simd, heads.positions, heads.width));
    return make_kernel([&context, heads, out = bound[at::out]]() noexcept {
        heads.for_each(context, [&](AttentionHead& head, int member, std::int64_t row, int column) {
            head.out = out.at<float>(member, 0, row) + column;
            head.out_stride = out.stride_row;
            context.simd.attention_forward(head);
        });
    });
}

KernelResult make_attention_backward(Context& context, const Bound& bound) {
    namespace at = attention_backward;
    const Heads heads(bound, at::qkv, at::lengths, at::logsumexp);
    context.scratch.reserve_worker(attention_floats(context.simd, heads.positions, heads.width));
    return make_kernel([&context, heads, dout = bound[at::dout], out = bound[at::out], dqkv = bound[at::dqkv]]() noexcept {
        heads.for_each(context, [&](AttentionHead& head, int member, std::int64_t row, int column) {
            head.dout = dout.at<float>(member, 0, row) + column;
            head.dout_stride = dout.stride_row;
            head.out = out.at<float>(member, 0, row) + column;
            head.out_stride = out.stride_row;
            head.dq = dqkv.at<float>(member, 0, row) + column;
            head.dk = head.dq + heads.all;
            head.dv = head.dk + heads.all;
            head.gradient_stride = dqkv.stride_row;
            context.simd.attention_backward(head);
        });
    });
}

}  // namespace millrace::ops::cpu
