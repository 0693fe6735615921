#include "ops/text/text.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "ops/gather/gather.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/text/token_loss.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

/// Both directions of the embedding.
Checker& check_embed(Checker& c, int y, int ids, int lengths, int table, int position, int before) {
    const auto [k, g, rows, cols] = c.shape(y);
    const int prefix = c.params<TokenParams>().prefix, sequences = c.shape(lengths).rows, positions = prefix + c.shape(ids).cols;
    c.require({y}, Type::real, {k, 1, sequences * positions, cols}).allow({before}, Type::real, {k, 1, sequences, prefix * cols});
    c.allow({table}, Type::stat, {k, 1, c.shape(table).rows, cols}).allow({position}, Type::stat, {k, 1, positions, cols});
    return check_tokens(c, y, ids, lengths, prefix);
}

/// Both directions of the mean.
void check_mean(Checker& c, int values, int mean, int lengths) {
    const auto [k, g, rows, cols] = c.shape(values);
    c.require({values}, Type::real, {k, 1, rows, cols}).require({mean}, Type::real, {k, 1, c.shape(lengths).rows, cols});
    const int prefix = c.params<TokenParams>().prefix;
    check_positions(c, values, lengths, prefix).that(prefix >= 0, "the prefix is below 0");
}

template <class T>
void embed_sequence(const Bound& b, int member, int sequence, const host::Loops<T>& loops) {
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
            loops.add_rows(out.cols, from, where, to, false);
    }
}

/// The columns [begin, end) of everything that the backward pass writes for one member.
template <class T>
void embed_backward_columns(const Bound& b, int member, int begin, int end, const host::Loops<T>& loops) {
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
            const auto add_to = [&](T* to) { loops.add_rows(end - begin, from, nullptr, to + begin, true); };
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

template <class T>
void mean_of_sequence(const Bound& b, int member, int sequence, const host::Loops<T>& loops) {
    namespace at = masked_mean;
    const Operand& x = b[at::x];
    const int prefix = b.params<TokenParams>().prefix, positions = positions_of(x, b[at::lengths]);
    const int filled = prefix + tokens_of(b[at::lengths], member, sequence, positions - prefix);
    T* to = b[at::y].at<T>(member, 0, sequence);
    std::fill_n(to, x.cols, T{});
    for (int position = 0; position < filled; ++position)
        loops.add_rows(x.cols, x.at<T>(member, 0, std::int64_t{sequence} * positions + position), nullptr, to, true);
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

template <class T>
void choose_in_sequence(const Bound& b, int member, int sequence, const host::Loops<T>& loops) {
    namespace at = token_choose;
    const Operand &logits = b[at::logits], &ids = b[at::ids], &lengths = b[at::lengths];
    const auto& params = b.params<TokenChooseParams>();
    std::int32_t* words = ids.at<std::int32_t>(member, 0, sequence);
    const int length = tokens_of(lengths, member, sequence, ids.cols);
    if (length == ids.cols || (length > 0 && words[length - 1] == params.end)) return;
    const std::int64_t row = std::int64_t{sequence} * positions_of(logits, lengths) + params.first + length;
    words[length] = loops.largest(logits.cols, logits.at<T>(member, 0, row));
    *lengths.at<std::int32_t>(member, 0, sequence) = length + 1;
}

constexpr TokenSlots kLossSlots = {token_cross_entropy::logits, token_cross_entropy::ids,   token_cross_entropy::lengths,
                                   token_cross_entropy::state,  token_cross_entropy::tally, token_cross_entropy::total};

/// Of all rows, [K, rows].
std::vector<FoundToken> found_tokens(const Operand& logits) {
    return std::vector<FoundToken>(static_cast<std::size_t>(logits.k) * static_cast<std::size_t>(logits.rows));
}

/// `task`: member * sequences + sequence.
template <class T>
void loss_of_sequence(const Bound& b, int task, const host::Loops<T>& loops, std::vector<FoundToken>& all) {
    namespace at = token_cross_entropy;
    const Operand &logits = b[at::logits], &dlogits = b[at::dlogits];
    const int member = task / b[at::lengths].rows, sequence = task % b[at::lengths].rows;
    FoundToken* found = all.data() + std::ptrdiff_t{member} * logits.rows;
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

/// One sum per member in the order of the rows.
template <class T>
void add_losses(const Bound& b, const std::vector<FoundToken>& all) {
    const Operand& logits = b[token_cross_entropy::logits];
    for (int member = 0; member < logits.k; ++member) {
        const FoundToken* found = all.data() + std::ptrdiff_t{member} * logits.rows;
        TokenRows<T>(b, kLossSlots, member).add_up([&](int row, int) { return found[row]; });
    }
}

void run_losses(const Bound& bound) {
    std::vector<FoundToken> found = found_tokens(bound[token_cross_entropy::logits]);
    for (std::int64_t task = 0; task < bound[token_cross_entropy::lengths].count(); ++task)
        loss_of_sequence<double>(bound, static_cast<int>(task), {}, found);
    add_losses<double>(bound, found);
}
KernelResult make_losses(cpu::Context& context, const Bound& bound) {
    const Operand& logits = bound[token_cross_entropy::logits];
    return cpu::make_kernel([&context, b = bound, logits, found = found_tokens(logits)]() mutable noexcept {
        context.pool.for_each_if(logits.count() >= cpu::kParallelElements,
                                 static_cast<int>(b[token_cross_entropy::lengths].count()),
                                 [&](int task, int) { loss_of_sequence<float>(b, task, context.simd, found); });
        add_losses<float>(b, found);
    });
}

void run_embed_backward(const Bound& bound) {
    const Operand& dy = bound[token_embed_backward::dy];
    for (int m = 0; m < dy.k; ++m) embed_backward_columns<double>(bound, m, 0, dy.cols, {});
}
/// Threads share columns, not rows: two rows may hold the same token.
KernelResult make_embed_backward(cpu::Context& context, const Bound& bound) {
    namespace at = token_embed_backward;
    return cpu::make_kernel([&context, b = bound, dy = bound[at::dy]]() noexcept {
        const bool parallel = dy.count() + b[at::dtable].count() >= cpu::kParallelElements;
        const cpu::Blocks columns(dy.cols, 16, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, dy.k * columns.count, [&](int task, int) {
            const int part = task % columns.count;
            embed_backward_columns<float>(b, task / columns.count, columns.begin(part), columns.end(part), context.simd);
        });
    });
}

/// About so many elements are read or written for a sequence.
std::int64_t elements_each(const Bound& b, int values, int lengths) {
    return b[values].count() / std::max<std::int64_t>(1, b[lengths].count());
}

}  // namespace

MILLRACE_OPERATOR(token_embed, Phase::forward, {"table"}, {"position"}, {"before"}, {"ids"}, {"lengths"}, {"state", update},
                  {"y", write});
MILLRACE_OPERATOR(token_embed_backward, Phase::backward, {"dy"}, {"ids"}, {"lengths"}, {"dtable", add}, {"dposition", add},
                  {"dbefore", add});
MILLRACE_OPERATOR(masked_mean, Phase::forward, {"x"}, {"lengths"}, {"y", write});
MILLRACE_OPERATOR(masked_mean_backward, Phase::backward, {"dy"}, {"lengths"}, {"dx", add});
MILLRACE_OPERATOR(token_cross_entropy, Phase::loss, {"logits"}, {"ids"}, {"lengths"}, {"state", update}, {"dlogits", write},
                  {"tally", add}, {"total"});
MILLRACE_OPERATOR(token_choose, Phase::forward, {"logits"}, {"ids", update}, {"lengths", update});

void token_embed::check(Checker& c) {
    check_embed(c, y, ids, lengths, table, position, before).needs({before}, c.params<TokenParams>().prefix > 0);
    c.needs({table, position}).state(state, c.shape(y).k);
}
void token_embed_backward::check(Checker& c) { check_embed(c, dy, ids, lengths, dtable, dposition, dbefore); }

void masked_mean::check(Checker& c) { check_mean(c, x, y, lengths); }
void masked_mean_backward::check(Checker& c) { check_mean(c, dx, dy, lengths); }

void token_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, real, {k, 1, rows, cols}).allow({dlogits}, real, {k, 1, rows, cols}).state(state, k);
    c.allow({tally}, stat, {k, 1, 1, kTallyColumns}).allow({total}, stat, {k, 1, 1, 2});
    check_tokens(c, logits, ids, lengths, c.params<TokenLossParams>().first);
}

void token_choose::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, real, {k, 1, rows, cols}).that(cols > 0, "there is no token to choose");
    check_tokens(c, logits, ids, lengths, c.params<TokenChooseParams>().first);
}

MILLRACE_HOST_ROWS(token_embed, lengths, elements_each(bound, token_embed::y, token_embed::lengths), embed_sequence);
MILLRACE_HOST_KERNELS(token_embed_backward, run_embed_backward(bound), make_embed_backward(context, bound));
MILLRACE_HOST_ROWS(masked_mean, lengths, elements_each(bound, masked_mean::x, masked_mean::lengths), mean_of_sequence);
MILLRACE_HOST_ROWS(masked_mean_backward, lengths, elements_each(bound, masked_mean_backward::dx, masked_mean_backward::lengths),
                   mean_backward_of_sequence);
MILLRACE_HOST_KERNELS(token_cross_entropy, run_losses(bound), make_losses(context, bound));
MILLRACE_HOST_ROWS(token_choose, lengths, bound[token_choose::logits].cols, choose_in_sequence);

MILLRACE_REWRITE(window_embed, gather_windows, 0);

}  // namespace millrace::ops
