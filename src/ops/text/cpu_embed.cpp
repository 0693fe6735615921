#include <algorithm>
#include <atomic>

#include "ops/text/cpu_sequences.h"
#include "ops/text/text.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Rows of the values that some sequences fill: body(row, sequence, place).
template <class Body>
void for_each_filled(const Operand& lengths, int member, int prefix, int tokens, Body&& body) noexcept {
    for (int b = 0; b < lengths.rows; ++b) {
        const int filled = prefix + tokens_of(lengths, member, b, tokens);
        for (int place = 0; place < filled; ++place) body(std::int64_t{b} * (prefix + tokens) + place, b, place);
    }
}

/// The columns [begin, end) of everything that the way back writes for one member.
void embed_backward_columns(const SimdKernels& simd, const Bound& b, int prefix, int member, int begin, int end) noexcept {
    namespace at = token_embed_backward;
    const Operand &ids = b[at::ids], &table = b[at::dtable], &places = b[at::dplace], &before = b[at::dbefore];
    const int width = b[at::dy].cols;
    const auto add = [&](float* to, const float* from) { simd.add_rows(end - begin, from + begin, nullptr, to + begin, true); };
    for (const int slot : {at::dtable, at::dplace}) {
        for (int row = 0; b[slot].present() && !b.accumulates(slot) && row < b[slot].rows; ++row)
            std::fill_n(b[slot].at<float>(member, 0, row) + begin, end - begin, 0.0f);
    }
    for (int row = 0; before.present() && !b.accumulates(at::dbefore) && row < before.rows; ++row) {
        for (int p = 0; p < prefix; ++p) std::fill_n(before.at<float>(member, 0, row) + p * width + begin, end - begin, 0.0f);
    }
    for_each_filled(b[at::lengths], member, prefix, ids.cols, [&](std::int64_t row, int sequence, int place) {
        const float* from = b[at::dy].at<float>(member, 0, row);
        if (places.present()) add(places.at<float>(member, 0, place), from);
        if (place < prefix) {
            if (before.present()) add(before.at<float>(member, 0, sequence) + place * width, from);
            return;
        }
        const std::int32_t id = ids.at<std::int32_t>(member, 0, sequence)[place - prefix];
        if (table.present() && id >= 0 && id < table.rows) add(table.at<float>(member, 0, id), from);
    });
}

}  // namespace

KernelResult make_token_embed(Context& context, const Bound& bound) {
    namespace at = token_embed;
    const Operand y = bound[at::y], ids = bound[at::ids], lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix, places = prefix + ids.cols;
    Checker check(bound);
    check.require(at::y, DType::f32, y.k, 1, lengths.rows * places, y.cols);
    check.require(at::table, DType::f32, y.k, 1, bound[at::table].rows, y.cols)
        .require(at::place, DType::f32, y.k, 1, places, y.cols);
    check.require(at::ids, DType::i32, y.k, 1, lengths.rows, ids.cols).require(at::lengths, DType::i32, y.k, 1, lengths.rows, 1);
    if (prefix > 0) check.require(at::before, DType::f32, y.k, 1, lengths.rows, prefix * y.cols);
    check.state(at::state, y.k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, prefix, places]() noexcept {
        const Operand &out = b[at::y], &table = b[at::table], &words = b[at::ids];
        const int sequences = b[at::lengths].rows;
        context.pool.for_each_if(out.count() >= kParallelElements, out.k * sequences, [&](int task, int) {
            const int member = task / sequences, sequence = task % sequences;
            const int filled = prefix + tokens_of(b[at::lengths], member, sequence, words.cols);
            for (int place = 0; place < places; ++place) {
                float* to = out.at<float>(member, 0, std::int64_t{sequence} * places + place);
                if (place >= filled) {
                    std::fill_n(to, out.cols, 0.0f);
                    continue;
                }
                const float *where = b[at::place].at<float>(member, 0, place), *from = nullptr;
                if (place < prefix) {
                    from = b[at::before].at<float>(member, 0, sequence) + place * out.cols;
                } else if (const std::int32_t id = words.at<std::int32_t>(member, 0, sequence)[place - prefix];
                           id >= 0 && id < table.rows) {
                    from = table.at<float>(member, 0, id);
                }
                if (from == nullptr) {
                    std::atomic_ref(state_of(b[at::state], member).nonfinite).store(1, std::memory_order_relaxed);
                    std::copy_n(where, out.cols, to);
                    continue;
                }
                context.simd.add_rows(out.cols, from, where, to, false);
            }
        });
    });
}

KernelResult make_token_embed_backward(Context& context, const Bound& bound) {
    namespace at = token_embed_backward;
    const Operand dy = bound[at::dy], ids = bound[at::ids], lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix, places = prefix + ids.cols;
    Checker check(bound);
    check.require(at::dy, DType::f32, dy.k, 1, lengths.rows * places, dy.cols);
    check.require(at::ids, DType::i32, dy.k, 1, lengths.rows, ids.cols)
        .require(at::lengths, DType::i32, dy.k, 1, lengths.rows, 1);
    check.allow(at::dtable, DType::f32, dy.k, 1, bound[at::dtable].rows, dy.cols)
        .allow(at::dplace, DType::f32, dy.k, 1, places, dy.cols);
    check.allow(at::dbefore, DType::f32, dy.k, 1, lengths.rows, prefix * dy.cols);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, prefix, dy]() noexcept {
        // Threads share columns, not rows: two rows may hold the same token.
        const bool parallel = dy.count() + b[at::dtable].count() >= kParallelElements;
        const Blocks columns(dy.cols, 16, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, dy.k * columns.count, [&](int task, int) {
            const int part = task % columns.count;
            embed_backward_columns(context.simd, b, prefix, task / columns.count, columns.begin(part), columns.end(part));
        });
    });
}

KernelResult make_masked_mean(Context& context, const Bound& bound) {
    namespace at = masked_mean;
    const Operand x = bound[at::x], y = bound[at::y], lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix;
    Checker check(bound);
    check.require(at::x, DType::f32, x.k, 1, x.rows, x.cols).require(at::y, DType::f32, x.k, 1, lengths.rows, x.cols);
    require_places(check, at::lengths, lengths, x, prefix);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, x, y, lengths, prefix, places = places_of(x, lengths)]() noexcept {
        context.pool.for_each_if(x.count() >= kParallelElements, y.k * y.rows, [&](int task, int) {
            const int member = task / y.rows, sequence = task % y.rows;
            const int filled = prefix + tokens_of(lengths, member, sequence, places - prefix);
            float* to = y.at<float>(member, 0, sequence);
            std::fill_n(to, y.cols, 0.0f);
            for (int place = 0; place < filled; ++place)
                context.simd.add_rows(y.cols, x.at<float>(member, 0, std::int64_t{sequence} * places + place), nullptr, to, true);
            for (int c = 0; c < y.cols && filled > 0; ++c) to[c] /= static_cast<float>(filled);
        });
    });
}

KernelResult make_masked_mean_backward(Context& context, const Bound& bound) {
    namespace at = masked_mean_backward;
    const Operand dx = bound[at::dx], dy = bound[at::dy], lengths = bound[at::lengths];
    const int prefix = bound.params<TokenParams>().prefix;
    Checker check(bound);
    check.require(at::dx, DType::f32, dx.k, 1, dx.rows, dx.cols).require(at::dy, DType::f32, dx.k, 1, lengths.rows, dx.cols);
    require_places(check, at::lengths, lengths, dx, prefix);
    MILLRACE_TRY(check.status());
    return make_kernel(
        [&context, dx, dy, lengths, prefix, places = places_of(dx, lengths), add = bound.accumulates(at::dx)]() noexcept {
            context.pool.for_each_if(dx.count() >= kParallelElements, dy.k * dy.rows, [&](int task, int) {
                const int member = task / dy.rows, sequence = task % dy.rows;
                const int filled = prefix + tokens_of(lengths, member, sequence, places - prefix);
                const float share = filled > 0 ? 1.0f / static_cast<float>(filled) : 0;
                const float* from = dy.at<float>(member, 0, sequence);
                for (int place = 0; place < places; ++place) {
                    float* to = dx.at<float>(member, 0, std::int64_t{sequence} * places + place);
                    if (place >= filled) {
                        if (!add) std::fill_n(to, dx.cols, 0.0f);
                        continue;
                    }
                    for (int c = 0; c < dx.cols; ++c) to[c] = add ? to[c] + from[c] * share : from[c] * share;
                }
            });
        });
}

}  // namespace millrace::ops::cpu
