#include "ops/parts/parts.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"

namespace millrace::ops {
namespace {

// On the host: a few words per member on the calling thread, sums of gradients on all.

template <class T>
void end_part(const Bound& bound) {
    using namespace part_end;
    const auto& p = bound.params<PartEndParams>();
    for (int m = 0; m < bound[state].k; ++m) {
        MemberState& s = state_of(bound[state], m);
        auto* cell = reinterpret_cast<std::byte*>(bound[table].at<std::int32_t>(m, 0, (s.micro - p.rank) / p.micro.world));
        const PartSums sums = take_sums(s);
        std::memcpy(cell, &sums, sizeof sums);
        if (bound[running].present()) {
            T* moved = bound[running].at<T>(m);
            auto* to = reinterpret_cast<float*>(cell + sizeof sums);
            for (int c = 0; c < bound[running].cols; ++c) to[c] = static_cast<float>(moved[c]);
            std::fill_n(moved, bound[running].cols, T{kUnmoved});
        }
        close_micro(p.micro, s);
    }
}

const std::byte* cell_in(const Bound& bound, int member, std::uint32_t part) {
    const tensor::Operand& all = bound[fold_sums::all];
    const auto& p = bound.params<FoldParams>();
    const std::int64_t words = cell_of(p, all.k, all.rows / static_cast<std::int64_t>(p.world), all.cols, member, part);
    return reinterpret_cast<const std::byte*>(all.at<std::int32_t>(0) + words);
}

template <class>
void sum_up(const Bound& bound) {
    for (int m = 0; m < bound[fold_sums::state].k; ++m) {
        MemberState& s = state_of(bound[fold_sums::state], m);
        s.loss = s.penalty = 0;
        s.rows = s.correct = 0;
        for (std::uint32_t part = 0; part < bound.params<FoldParams>().count; ++part) {
            PartSums sums;
            std::memcpy(&sums, cell_in(bound, m, part), sizeof sums);
            add_sums(s, sums);
        }
    }
}

template <class T>
void move_running(const Bound& bound) {
    const tensor::Operand& value = bound[fold_running::value];
    const auto& p = bound.params<FoldParams>();
    for (int m = 0; m < value.k; ++m)
        for (std::uint32_t part = 0; part < p.count; ++part) {
            const float* moved = reinterpret_cast<const float*>(cell_in(bound, m, part) + sizeof(PartSums)) + p.offset;
            for (int g = 0; g < value.g; ++g)
                for (int c = 0; c < value.cols; ++c) {
                    T& to = value.at<T>(m, g)[c];
                    to = fold_statistic(to, *moved++, p.momentum);
                }
        }
}

template <class T>
void add_piece(const Bound& bound, int member, int begin, int end) {
    T* __restrict gradients = bound[add_part::gradients].at<T>(member);
    T* __restrict sums = bound[add_part::sums].at<T>(member);
    for (std::int64_t i = begin; i < end; ++i) gradients[i] = sums[i] += gradients[i];
}

void sum_in_order(const Bound& bound) {
    for (int m = 0; m < bound[add_part::gradients].k; ++m) add_piece<double>(bound, m, 0, bound[add_part::gradients].cols);
}
KernelResult make_sum(cpu::Context& context, const Bound& bound) {
    return cpu::make_kernel([&context, b = bound]() noexcept {
        const tensor::Operand& gradients = b[add_part::gradients];
        cpu::for_each_piece(context, gradients.k, gradients.cols, 1,
                            [&](int member, int begin, int end) { add_piece<float>(b, member, begin, end); });
    });
}

base::Status gather_tables(comm::Group& group, const Bound& bound) {
    const tensor::Operand &table = bound[exchange::table], &all = bound[exchange::all];
    return group.all_gather(table.at<std::int32_t>(0), all.at<std::int32_t>(0),
                            static_cast<std::size_t>(table.count()) * sizeof(std::int32_t));
}

/// Errors stay with the context: Backend::check() gives the first.
KernelResult make_host_exchange(cpu::Context& context, const Bound& bound) {
    const bool by_library = bound.params<ExchangeParams>().by_library;
    const auto count = static_cast<std::size_t>(bound[exchange::gradients].count());
    auto sum = std::make_unique<comm::OrderedSum>(context.group, by_library ? 0 : count);
    return cpu::make_kernel([&context, b = bound, by_library, count, sum = std::move(sum)]() noexcept {
        float* gradients = b[exchange::gradients].at<float>(0);
        context.note(by_library ? context.group.all_reduce(gradients, count) : sum->reduce(gradients, count));
        context.note(gather_tables(context.group, b));
    });
}

}  // namespace

MILLRACE_OPERATOR(part_end, Phase::optimizer, {"state", update}, {"running", update}, {"table", update});
MILLRACE_OPERATOR(add_part, Phase::optimizer, {"gradients", update}, {"sums", update});
MILLRACE_OPERATOR(exchange, Phase::optimizer, {"gradients", update}, {"table"}, {"all", write});
MILLRACE_OPERATOR(fold_sums, Phase::optimizer, {"all"}, {"state", update});
MILLRACE_OPERATOR(fold_running, Phase::optimizer, {"all"}, {"value", update});

void part_end::check(Checker& c) {
    const auto [k, g, rows, words] = c.shape(table);
    c.params<PartEndParams>();
    c.state(state, k).require({table}, i32, {k, 1, rows, words}).allow({running}, stat, {k, 1, 1, c.shape(running).cols});
    c.that(words >= part_words(c.shape(running).cols), "a row holds PartSums and what statistics moved by");
}
void add_part::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(gradients);
    c.params<AddPartParams>();
    c.require({gradients, sums}, stat, {k, 1, 1, cols});
}
void exchange::check(Checker& c) {
    const auto [k, g, rows, words] = c.shape(table);
    c.params<ExchangeParams>();
    c.require({gradients}, stat, {k, 1, 1, c.shape(gradients).cols});
    c.require({table}, i32, {k, 1, rows, words}).require({all}, i32, {k, 1, c.shape(all).rows, words});
    c.that(rows > 0 && c.shape(all).rows % rows == 0, "all tables have equally many rows");
}
static void check_fold(Checker& c) {
    const auto& p = c.params<FoldParams>();
    const auto [k, g, rows, words] = c.shape(fold_sums::all);
    c.require({fold_sums::all}, Type::i32, {k, 1, rows, words});
    c.that(p.world > 0 && rows % static_cast<int>(p.world) == 0 && p.count <= static_cast<std::uint32_t>(rows),
           "the tables hold fewer micro-batches");
}
void fold_sums::check(Checker& c) {
    check_fold(c);
    c.state(state, c.shape(all).k);
}
void fold_running::check(Checker& c) {
    check_fold(c);
    const auto [k, g, rows, cols] = c.shape(value);
    c.require({value}, stat, {c.shape(all).k, g, 1, cols});
    const auto end = c.params<FoldParams>().offset + static_cast<std::uint32_t>(g * cols);
    c.that(c.shape(all).cols >= part_words(static_cast<std::int32_t>(end)), "the tables hold fewer statistics");
}

MILLRACE_HOST_AT_ONCE(part_end, end_part);
MILLRACE_HOST_AT_ONCE(fold_sums, sum_up);
MILLRACE_HOST_AT_ONCE(fold_running, move_running);
MILLRACE_HOST_KERNELS(add_part, sum_in_order(bound), make_sum(context, bound));
MILLRACE_HOST_KERNELS(exchange, (void)gather_tables(*std::make_unique<comm::Group>(), bound), make_host_exchange(context, bound));

}  // namespace millrace::ops
