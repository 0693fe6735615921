#include <algorithm>
#include <cmath>

#include "ops/attention/attention.h"
#include "ops/text/cpu_sequences.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Checks what both directions read and says how the heads lie.
struct Heads {
    AttentionParams params;
    Operand qkv, lengths;
    int places = 0, all = 0, width = 0;

    Heads(const Bound& bound, int qkv_slot, int lengths_slot)
        : params(bound.params<AttentionParams>()), qkv(bound[qkv_slot]), lengths(bound[lengths_slot]) {
        places = places_of(qkv, lengths);
        all = qkv.cols / 3;
        width = params.heads > 0 ? all / params.heads : 0;
    }
    void check(Checker& check, int qkv_slot, int lengths_slot) const {
        check.require(qkv_slot, DType::f32, qkv.k, 1, qkv.rows, qkv.cols);
        require_places(check, lengths_slot, lengths, qkv, params.prefix);
        check.that(width > 0 && width * params.heads * 3 == qkv.cols, "qkv needs three times as many columns as whole heads");
    }
    [[nodiscard]] AttentionHead head(int member, int sequence, int h) const {
        AttentionHead head{};
        head.width = width;
        head.places = places;
        head.filled = params.prefix + tokens_of(lengths, member, sequence, places - params.prefix);
        head.prefix = params.prefix;
        head.causal = params.causal;
        head.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
        head.q = qkv.at<float>(member, 0, std::int64_t{sequence} * places) + h * width;
        head.k = head.q + all;
        head.v = head.k + all;
        head.stride = qkv.stride_row;
        return head;
    }
    /// body(member, sequence, head, scratch) for all of them.
    template <class Body>
    void for_each(Context& context, Body&& body) const noexcept {
        const std::int64_t work = 2 * qkv.count() / 3 * places;
        const int per_member = lengths.rows * params.heads;
        if (places == 0) return;
        context.pool.for_each_if(work >= kParallelProducts, qkv.k * per_member, [&](int task, int worker) {
            const int rest = task % per_member;
            body(task / per_member, rest / params.heads, rest % params.heads, context.scratch.worker(worker));
        });
    }
};

}  // namespace

KernelResult make_attention_forward(Context& context, const Bound& bound) {
    namespace at = attention_forward;
    const Heads heads(bound, at::qkv, at::lengths);
    Checker check(bound);
    heads.check(check, at::qkv, at::lengths);
    check.require(at::out, DType::f32, heads.qkv.k, 1, heads.qkv.rows, heads.all);
    check.require(at::level, DType::f32, heads.qkv.k, 1, heads.qkv.rows, heads.params.heads);
    MILLRACE_TRY(check.status());
    context.scratch.reserve_worker(attention_floats(context.simd, heads.places, heads.width));
    return make_kernel([&context, heads, out = bound[at::out], level = bound[at::level]]() noexcept {
        heads.for_each(context, [&](int member, int sequence, int h, float* scratch) {
            const std::int64_t row = std::int64_t{sequence} * heads.places;
            AttentionHead head = heads.head(member, sequence, h);
            head.level = level.at<float>(member, 0, row) + h;
            head.level_stride = level.stride_row;
            head.out = out.at<float>(member, 0, row) + h * heads.width;
            head.out_stride = out.stride_row;
            head.scratch = scratch;
            context.simd.attention_forward(head);
        });
    });
}

KernelResult make_attention_backward(Context& context, const Bound& bound) {
    namespace at = attention_backward;
    const Heads heads(bound, at::qkv, at::lengths);
    Checker check(bound);
    heads.check(check, at::qkv, at::lengths);
    check.require(at::dout, DType::f32, heads.qkv.k, 1, heads.qkv.rows, heads.all).like(at::dqkv, at::qkv);
    check.require(at::level, DType::f32, heads.qkv.k, 1, heads.qkv.rows, heads.params.heads);
    MILLRACE_TRY(check.status());
    context.scratch.reserve_worker(attention_floats(context.simd, heads.places, heads.width));
    return make_kernel([&context, heads, dout = bound[at::dout], level = bound[at::level], dqkv = bound[at::dqkv]]() noexcept {
        heads.for_each(context, [&](int member, int sequence, int h, float* scratch) {
            const std::int64_t row = std::int64_t{sequence} * heads.places;
            AttentionHead head = heads.head(member, sequence, h);
            head.level = level.at<float>(member, 0, row) + h;
            head.level_stride = level.stride_row;
            head.dout = dout.at<float>(member, 0, row) + h * heads.width;
            head.dout_stride = dout.stride_row;
            head.dq = dqkv.at<float>(member, 0, row) + h * heads.width;
            head.dk = head.dq + heads.all;
            head.dv = head.dk + heads.all;
            head.gradient_stride = dqkv.stride_row;
            head.scratch = scratch;
            context.simd.attention_backward(head);
        });
    });
}

}  // namespace millrace::ops::cpu
