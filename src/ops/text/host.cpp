// One body for the reference (T = double) and the CPU backend (T = float, whose vector loops it is given).
#include <algorithm>
#include <atomic>
#include <vector>

#include "ops/cpu/kernel.h"
#include "ops/ref/kernels.h"
#include "ops/text/text.h"
#include "ops/text/token_loss.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

template <class T, class Add>
void embed_sequence(const Bound& b, int member, int sequence, Add add) {
    namespace at = token_embed;
    const Operand &out = b[at::y], &table = b[at::table], &words = b[at::ids];
    const int prefix = b.params<TokenParams>().prefix, positions = prefix + words.cols;
    const int filled = prefix + tokens_of(b[at::lengths], member, sequence, words.cols);
    for (int position = 0; position < positions; ++position) {
        T* to = out.at<T>(member, 0, std::int64_t{sequence} * positions + position);
        if (position >= filled) {
            std::fill_n(to, out.cols, T{});
            continue;
        }
        const T *where = b[at::position].at<T>(member, 0, position), *from = nullptr;
        if (position < prefix) {
            from = b[at::before].at<T>(member, 0, sequence) + position * out.cols;
        } else if (const std::int32_t id = words.at<std::int32_t>(member, 0, sequence)[position - prefix];
                   id >= 0 && id < table.rows) {
            from = table.at<T>(member, 0, id);
        } else {
            std::atomic_ref(state_of(b[at::state], member).nonfinite).store(1, std::memory_order_relaxed);
        }
        if (from == nullptr)
            std::copy_n(where, out.cols, to);
        else
            add(out.cols, from, where, to, false);
    }
}

/// The columns [begin, end) of everything that the backward pass writes for one member.
template <class T, class Add>
void embed_backward_columns(const Bound& b, int member, int begin, int end, Add add) {
    namespace at = token_embed_backward;
    const Operand &ids = b[at::ids], &table = b[at::dtable], &places = b[at::dposition], &before = b[at::dbefore];
    const int prefix = b.params<TokenParams>().prefix, width = b[at::dy].cols, positions = prefix + ids.cols;
    const auto clear = [&](int slot, int parts) {
        for (int row = 0; b[slot].present() && !b.accumulates(slot) && row < b[slot].rows; ++row)
            for (int p = 0; p < parts; ++p) std::fill_n(b[slot].at<T>(member, 0, row) + p * width + begin, end - begin, T{});
    };
    clear(at::dtable, 1);
    clear(at::dposition, 1);
    clear(at::dbefore, prefix);
    for (int sequence = 0; sequence < b[at::lengths].rows; ++sequence) {
        const int filled = prefix + tokens_of(b[at::lengths], member, sequence, ids.cols);
        for (int position = 0; position < filled; ++position) {
            const T* from = b[at::dy].at<T>(member, 0, std::int64_t{sequence} * positions + position) + begin;
            const auto add_to = [&](T* to) { add(end - begin, from, nullptr, to + begin, true); };
            if (places.present()) add_to(places.at<T>(member, 0, position));
            if (position < prefix) {
                if (before.present()) add_to(before.at<T>(member, 0, sequence) + position * width);
                continue;
            }
            const std::int32_t id = ids.at<std::int32_t>(member, 0, sequence)[position - prefix];
            if (table.present() && id >= 0 && id < table.rows) add_to(table.at<T>(member, 0, id));
        }
    }
}

template <class T, class Add>
void mean_of_sequence(const Bound& b, int member, int sequence, Add add) {
    namespace at = masked_mean;
    const Operand& x = b[at::x];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(x, b[at::lengths]);
    const int filled = prefix + tokens_of(b[at::lengths], member, sequence, positions - prefix);
    T* to = b[at::y].at<T>(member, 0, sequence);
    std::fill_n(to, x.cols, T{});
    for (int position = 0; position < filled; ++position)
        add(x.cols, x.at<T>(member, 0, std::int64_t{sequence} * positions + position), nullptr, to, true);
    for (int c = 0; c < x.cols && filled > 0; ++c) to[c] /= static_cast<T>(filled);
}

template <class T>
void mean_backward_of_sequence(const Bound& b, int member, int sequence) {
    namespace at = masked_mean_backward;
    const Operand& dx = b[at::dx];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(dx, b[at::lengths]);
    const int filled = prefix + tokens_of(b[at::lengths], member, sequence, positions - prefix);
    const T* from = b[at::dy].at<T>(member, 0, sequence);
    const T share = filled > 0 ? 1 / static_cast<T>(filled) : 0;
    for (int position = 0; position < positions; ++position) {
        T* to = dx.at<T>(member, 0, std::int64_t{sequence} * positions + position);
        for (int c = 0; c < dx.cols; ++c) {
            const T value = position < filled ? from[c] * share : 0;
            to[c] = b.accumulates(at::dx) ? to[c] + value : value;
        }
    }
}

template <class T, class Largest>
void choose_in_sequence(const Bound& b, int member, int sequence, Largest largest) {
    namespace at = token_choose;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &lengths = b[at::lengths];
    const auto& params = b.params<TokenChooseParams>();
    std::int32_t* words = ids.at<std::int32_t>(member, 0, sequence);
    const int length = tokens_of(lengths, member, sequence, ids.cols);
    if (length == ids.cols || (length > 0 && words[length - 1] == params.end)) return;
    const std::int64_t row = std::int64_t{sequence} * positions_of(logits, lengths) + params.first + length;
    words[length] = largest(logits.cols, logits.at<T>(member, 0, row));
    *lengths.at<std::int32_t>(member, 0, sequence) = length + 1;
}

constexpr TokenSlots kLossSlots = {token_cross_entropy::logits, token_cross_entropy::ids,   token_cross_entropy::lengths,
                                   token_cross_entropy::state,  token_cross_entropy::tally, token_cross_entropy::total};

template <class T, class Loops>
void loss_of_sequence(const Bound& b, int member, int sequence, const Loops& loops, FoundToken* found) {
    namespace at = token_cross_entropy;
    const Operand &logits = b[at::logits], &dlogits = b[at::dlogits];
    const TokenRows<T> rows(b, kLossSlots, member);
    const int first = rows.row(sequence, 0), end = first + rows.tokens(sequence);
    for (int row = sequence * rows.positions; row < (sequence + 1) * rows.positions; ++row) {
        T* gradient = dlogits.present() ? dlogits.at<T>(member, 0, row) : nullptr;
        if (row >= first && row < end)
            found[row] = token_loss<T>(loops, logits.cols, logits.at<T>(member, 0, row), rows.id(sequence, row - first),
                                       rows.share, gradient);
        else if (gradient != nullptr)
            std::fill_n(gradient, dlogits.cols, T{});
    }
}

}  // namespace

namespace ref {
namespace {

/// Calls body(member, sequence) for all of them; lengths [K,1,B,1].
template <class Body>
void for_each_sequence(const Operand& lengths, Body&& body) {
    for (int m = 0; m < lengths.k; ++m)
        for (int b = 0; b < lengths.rows; ++b) body(m, b);
}

}  // namespace

void run_token_embed(const Bound& bound) {
    for_each_sequence(bound[token_embed::lengths],
                      [&](int m, int b) { embed_sequence<double>(bound, m, b, PlainRows::add_rows); });
}
void run_token_embed_backward(const Bound& bound) {
    const Operand& dy = bound[token_embed_backward::dy];
    for (int m = 0; m < dy.k; ++m) embed_backward_columns<double>(bound, m, 0, dy.cols, PlainRows::add_rows);
}
void run_masked_mean(const Bound& bound) {
    for_each_sequence(bound[masked_mean::lengths],
                      [&](int m, int b) { mean_of_sequence<double>(bound, m, b, PlainRows::add_rows); });
}
void run_masked_mean_backward(const Bound& bound) {
    for_each_sequence(bound[masked_mean_backward::lengths],
                      [&](int m, int b) { mean_backward_of_sequence<double>(bound, m, b); });
}
void run_token_choose(const Bound& bound) {
    for_each_sequence(bound[token_choose::lengths],
                      [&](int m, int b) { choose_in_sequence<double>(bound, m, b, PlainRows::largest); });
}

void run_token_cross_entropy(const Bound& bound) {
    namespace at = token_cross_entropy;
    std::vector<FoundToken> found(static_cast<std::size_t>(bound[at::logits].rows));
    for (int m = 0; m < bound[at::logits].k; ++m) {
        for (int b = 0; b < bound[at::lengths].rows; ++b) loss_of_sequence<double>(bound, m, b, PlainRows{}, found.data());
        TokenRows<double>(bound, kLossSlots, m).add_up([&](int row, int) { return found[static_cast<std::size_t>(row)]; });
    }
}

}  // namespace ref

namespace cpu {
namespace {

/// body(bound, member, sequence) for all of them, on all threads where there is enough to do.
template <class Body>
KernelResult make_sequences(Context& context, const Bound& bound, int lengths, std::int64_t elements, Body body) {
    return make_kernel([&context, b = bound, lengths, elements, body]() noexcept {
        const int sequences = b[lengths].rows;
        context.pool.for_each_if(elements >= kParallelElements, b[lengths].k * sequences,
                                 [&](int task, int) { body(b, task / sequences, task % sequences); });
    });
}

}  // namespace

KernelResult make_token_embed(Context& context, const Bound& bound) {
    return make_sequences(context, bound, token_embed::lengths, bound[token_embed::y].count(),
                          [add = context.simd.add_rows](const Bound& b, int member, int sequence) {
                              embed_sequence<float>(b, member, sequence, add);
                          });
}

KernelResult make_token_embed_backward(Context& context, const Bound& bound) {
    namespace at = token_embed_backward;
    return make_kernel([&context, b = bound, dy = bound[at::dy]]() noexcept {
        // Threads share columns, not rows: two rows may hold the same token.
        const bool parallel = dy.count() + b[at::dtable].count() >= kParallelElements;
        const Blocks columns(dy.cols, 16, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, dy.k * columns.count, [&](int task, int) {
            const int part = task % columns.count;
            embed_backward_columns<float>(b, task / columns.count, columns.begin(part), columns.end(part), context.simd.add_rows);
        });
    });
}

KernelResult make_masked_mean(Context& context, const Bound& bound) {
    return make_sequences(context, bound, masked_mean::lengths, bound[masked_mean::x].count(),
                          [add = context.simd.add_rows](const Bound& b, int member, int sequence) {
                              mean_of_sequence<float>(b, member, sequence, add);
                          });
}
KernelResult make_masked_mean_backward(Context& context, const Bound& bound) {
    return make_sequences(context, bound, masked_mean_backward::lengths, bound[masked_mean_backward::dx].count(),
                          mean_backward_of_sequence<float>);
}
KernelResult make_token_choose(Context& context, const Bound& bound) {
    const Operand& logits = bound[token_choose::logits];
    return make_sequences(context, bound, token_choose::lengths, std::int64_t{bound[token_choose::lengths].rows} * logits.cols,
                          [largest = context.simd.largest](const Bound& b, int member, int sequence) {
                              choose_in_sequence<float>(b, member, sequence, largest);
                          });
}

/// Rows on all threads, then one sum per member in the order of the rows.
KernelResult make_token_cross_entropy(Context& context, const Bound& bound) {
    namespace at = token_cross_entropy;
    const Operand& logits = bound[at::logits];
    std::vector<FoundToken> found(static_cast<std::size_t>(logits.k) * static_cast<std::size_t>(logits.rows));
    return make_kernel([&context, b = bound, logits, found = std::move(found)]() mutable noexcept {
        const auto found_of = [&](int member) { return found.data() + std::ptrdiff_t{member} * logits.rows; };
        const int sequences = b[at::lengths].rows;
        context.pool.for_each_if(logits.count() >= kParallelElements, logits.k * sequences, [&](int task, int) {
            const int member = task / sequences;
            loss_of_sequence<float>(b, member, task % sequences, context.simd, found_of(member));
        });
        for (int member = 0; member < logits.k; ++member)
            TokenRows<float>(b, kLossSlots, member).add_up([&](int row, int) { return found_of(member)[row]; });
    });
}

}  // namespace cpu
}  // namespace millrace::ops
