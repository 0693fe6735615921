// The parts of a step on the host: a few words per member on the calling thread, sums of gradients on all.
#include <algorithm>
#include <cstring>

#include "comm/reduce.h"
#include "ops/host_kernels.h"
#include "ops/parts/parts.h"

namespace millrace::ops {
namespace {

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
void add_piece(const Bound& bound, int member, std::int64_t begin, std::int64_t end) {
    T* __restrict gradients = bound[add_part::gradients].at<T>(member);
    T* __restrict sums = bound[add_part::sums].at<T>(member);
    for (std::int64_t i = begin; i < end; ++i) gradients[i] = sums[i] += gradients[i];
}

KernelResult make_sum(cpu::Context& context, const Bound& bound) {
    return cpu::make_kernel([&context, b = bound]() noexcept {
        const std::int64_t cols = b[add_part::gradients].cols;
        const int pieces = static_cast<int>((cols + cpu::kParallelElements - 1) / cpu::kParallelElements);
        const int members = b[add_part::gradients].k;
        context.pool.for_each_if(pieces * members > 1, pieces * members, [&](int task, int) {
            const std::int64_t begin = task % pieces * cpu::kParallelElements;
            add_piece<float>(b, task / pieces, begin, std::min(begin + cpu::kParallelElements, cols));
        });
    });
}

void sum_in_order(const Bound& bound) {
    for (int m = 0; m < bound[add_part::gradients].k; ++m) add_piece<double>(bound, m, 0, bound[add_part::gradients].cols);
}

/// Both leave their error with the context: Backend::check() gives it.
KernelResult make_reduce_kernel(cpu::Context& context, const Bound& bound) {
    if (context.group == nullptr) return cpu::make_kernel([]() noexcept {});
    const tensor::Operand& data = bound[reduce::data];
    const auto count = static_cast<std::size_t>(data.count());
    if (bound.params<ReduceParams>().by_library)
        return cpu::make_kernel(
            [&context, data, count]() noexcept { context.note(context.group->all_reduce(data.at<float>(0), count)); });
    auto sum = std::make_unique<comm::OrderedSum>(*context.group, count);
    return cpu::make_kernel(
        [&context, data, count, sum = std::move(sum)]() noexcept { context.note(sum->reduce(data.at<float>(0), count)); });
}

void copy_table(const Bound& bound) {
    const tensor::Operand& table = bound[gather_parts::table];
    std::copy_n(table.at<std::int32_t>(0), table.count(), bound[gather_parts::all].at<std::int32_t>(0));
}

KernelResult make_gather(cpu::Context& context, const Bound& bound) {
    if (context.group == nullptr) return cpu::make_kernel([b = bound]() noexcept { copy_table(b); });
    return cpu::make_kernel([&context, b = bound]() noexcept {
        const tensor::Operand &table = b[gather_parts::table], &all = b[gather_parts::all];
        context.note(context.group->all_gather(table.at<std::int32_t>(0), all.at<std::int32_t>(0),
                                               static_cast<std::size_t>(table.count()) * sizeof(std::int32_t)));
    });
}

}  // namespace

MILLRACE_HOST_AT_ONCE(part_end, end_part);
MILLRACE_HOST_AT_ONCE(fold_sums, sum_up);
MILLRACE_HOST_AT_ONCE(fold_running, move_running);
MILLRACE_HOST_KERNELS(add_part, sum_in_order(bound), make_sum(context, bound));
MILLRACE_HOST_KERNELS(reduce, (void)bound, make_reduce_kernel(context, bound));
MILLRACE_HOST_KERNELS(gather_parts, copy_table(bound), make_gather(context, bound));

}  // namespace millrace::ops
