#include <algorithm>
#include <atomic>

#include "ops/cpu/kernel.h"
#include "ops/text/sequences.h"
#include "ops/text/text.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// Rows of the values that some sequences fill: body(row, sequence, position).
template <class Body>
void for_each_filled(const Operand& lengths, int member, int prefix, int tokens, Body&& body) noexcept {
    for (int b = 0; b < lengths.rows; ++b) {
        const int filled = prefix + tokens_of(lengths, member, b, tokens);
        for (int position = 0; position < filled; ++position) body(std::int64_t{b} * (prefix + tokens) + position, b, position);
    }
}

/// The columns [begin, end) of everything that the backward pass writes for one member.
void embed_backward_columns(const SimdKernels& simd, const Bound& b, int prefix, int member, int begin, int end) noexcept {
    namespace at = token_embed_backward;
    const Operand &ids = b[at::ids], &table = b[at::dtable], &positions = b[at::dposition], &before = b[at::dbefore];
    const int width = b[at::dy].cols;
    const auto add = [&](float* to, const float* from) { simd.add_rows(end - begin, from + begin, nullptr, to + begin, true); };
    for (const int slot : {at::dtable, at::dposition}) {
        for (int row = 0; b[slot].present() && !b.accumulates(slot) && row < b[slot].rows; ++row)
            std::fill_n(b[slot].at<float>(member, 0, row) + begin, end - begin, 0.0f);
    }
    for (int row = 0; before.present() && !b.accumulates(at::dbefore) && row < before.rows; ++row) {
        for (int p = 0; p < prefix; ++p) std::fill_n(before.at<float>(member, 0, row) + p * width + begin, end - begin, 0.0f);
    }
    for_each_filled(b[at::lengths], member, prefix, ids.cols, [&](std::int64_t row, int sequence, int position) {
        const float* from = b[at::dy].at<float>(member, 0, row);
        if (positions.present()) add(positions.at<float>(member, 0, position), from);
        if (position < prefix) {
            if (before.present()) add(before.at<float>(member, 0, sequence) + position * width, from);
            return;
        }
        const std::int32_t id = ids.at<std::int32_t>(member, 0, sequence)[position - prefix];
        if (table.present() && id >= 0 && id < table.rows) add(table.at<float>(member, 0, id), from);
    });
}

}  // namespace

KernelResult make_token_embed(Context& context, const Bound& bound) {
    namespace at = token_embed;
    const int prefix = bound.params<TokenParams>().prefix, positions = prefix + bound[at::ids].cols;
    return make_kernel([&context, b = bound, prefix, positions]() noexcept {
        const Operand &out = b[at::y], &table = b[at::table], &words = b[at::ids];
        const int sequences = b[at::lengths].rows;
        context.pool.for_each_if(out.count() >= kParallelElements, out.k * sequences, [&](int task, int) {
            const int member = task / sequences, sequence = task % sequences;
            const int filled = prefix + tokens_of(b[at::lengths], member, sequence, words.cols);
            for (int position = 0; position < positions; ++position) {
                float* to = out.at<float>(member, 0, std::int64_t{sequence} * positions + position);
                if (position >= filled) {
                    std::fill_n(to, out.cols, 0.0f);
                    continue;
                }
                const float *where = b[at::position].at<float>(member, 0, position), *from = nullptr;
                if (position < prefix) {
                    from = b[at::before].at<float>(member, 0, sequence) + position * out.cols;
                } else if (const std::int32_t id = words.at<std::int32_t>(member, 0, sequence)[position - prefix];
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
    return make_kernel([&context, b = bound, prefix = bound.params<TokenParams>().prefix, dy = bound[at::dy]]() noexcept {
        // Threads share columns, not rows: two rows may hold the same token.
        const bool parallel = dy.count() + b[at::dtable].count() >= kParallelElements;
        const Blocks columns(dy.cols, 16, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, dy.k * columns.count, [&](int task, int) {
            const int part = task % columns.count;
            embed_backward_columns(context.simd, b, prefix, task / columns.count, columns.begin(part), columns.end(part));
        });
    });
}

namespace {

/// Both directions of the mean: body(member, first row of the sequence, filled positions, positions, row of the mean) for every
/// sequence of `values` [K,1,B*N,C], whose mean is [K,1,B,C].
template <class Body>
KernelResult make_mean(Context& context, const Bound& bound, int values_slot, int mean_slot, int lengths_slot, Body body) {
    const Operand values = bound[values_slot], mean = bound[mean_slot], lengths = bound[lengths_slot];
    const int prefix = bound.params<TokenParams>().prefix;
    return make_kernel([&context, values, mean, lengths, prefix, body, positions = positions_of(values, lengths)]() noexcept {
        context.pool.for_each_if(values.count() >= kParallelElements, mean.k * mean.rows, [&](int task, int) {
            const int member = task / mean.rows, sequence = task % mean.rows;
            body(member, std::int64_t{sequence} * positions, prefix + tokens_of(lengths, member, sequence, positions - prefix),
                 positions, mean.at<float>(member, 0, sequence));
        });
    });
}

}  // namespace

KernelResult make_masked_mean(Context& context, const Bound& bound) {
    namespace at = masked_mean;
    return make_mean(context, bound, at::x, at::y, at::lengths,
                     [&context, x = bound[at::x]](int member, std::int64_t first, int filled, int, float* to) {
                         std::fill_n(to, x.cols, 0.0f);
                         for (int position = 0; position < filled; ++position)
                             context.simd.add_rows(x.cols, x.at<float>(member, 0, first + position), nullptr, to, true);
                         for (int c = 0; c < x.cols && filled > 0; ++c) to[c] /= static_cast<float>(filled);
                     });
}

KernelResult make_masked_mean_backward(Context& context, const Bound& bound) {
    namespace at = masked_mean_backward;
    return make_mean(context, bound, at::dx, at::dy, at::lengths,
                     [dx = bound[at::dx], add = bound.accumulates(at::dx)](int member, std::int64_t first, int filled,
                                                                           int positions, const float* from) {
                         const float share = filled > 0 ? 1.0f / static_cast<float>(filled) : 0;
                         for (int position = 0; position < positions; ++position) {
                             float* to = dx.at<float>(member, 0, first + position);
                             for (int c = 0; c < dx.cols; ++c) {
                                 const float value = position < filled ? from[c] * share : 0;
                                 to[c] = add ? to[c] + value : value;
                             }
                         }
                     });
}

}  // namespace millrace::ops::cpu
