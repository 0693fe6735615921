#pragma once
// Operators whose reference and CPU kernel are one template: the reference runs it in double and in order, the CPU in float on
// all threads. Each macro defines ref::run_NAME and cpu::make_NAME of the current namespace. Only files that define these include
// this.

#include "ops/cpu/kernel.h"

namespace millrace::ops::host {

/// A function of (bound, matrix, row) for rows [begin, end) of a matrix, whose number is member * groups + group.
template <class Row>
auto each_row(Row row_of) {
    return [row_of](const Bound& bound, int matrix, int begin, int end) {
        for (int row = begin; row < end; ++row) row_of(bound, matrix, row);
    };
}

/// rows(bound, matrix, begin, end) for all rows of a slot, then last(bound).
template <class Rows>
void run_rows(const Bound& bound, int slot, Rows rows, void (*last)(const Bound&) = nullptr) {
    for (int matrix = 0; matrix < bound[slot].k * bound[slot].g; ++matrix) rows(bound, matrix, 0, bound[slot].rows);
    if (last != nullptr) last(bound);
}
template <class Rows>
KernelResult make_rows(cpu::Context& context, const Bound& bound, int slot, std::int64_t work, Rows rows,
                       void (*last)(const Bound&) = nullptr) {
    return cpu::make_kernel([&context, b = bound, slot, work, rows, last]() noexcept {
        cpu::for_each_piece(context, b[slot].k * b[slot].g, b[slot].rows, work,
                            [&](int matrix, int begin, int end) { rows(b, matrix, begin, end); });
        if (last != nullptr) last(b);
    });
}

/// body(bound, member) for all members of a slot, side by side from `least` elements on.
template <class Body>
KernelResult make_members(cpu::Context& context, const Bound& bound, int slot, std::int64_t least, Body body) {
    return cpu::make_kernel([&context, b = bound, slot, least, body]() noexcept {
        const tensor::Operand& in = b[slot];
        context.pool.for_each_if(in.k > 1 && in.count() >= least, in.k, [&](int member, int) { body(b, member); });
    });
}

}  // namespace millrace::ops::host

/// body<T>(bound) at once on the calling thread.
#define MILLRACE_HOST_AT_ONCE(operation, body) \
    MILLRACE_HOST_KERNELS(operation, body<double>(bound), cpu::make_kernel([b = bound]() noexcept { body<float>(b); }))

/// body<T>(bound, member) for all members of a slot; `least`: elements from which on the CPU does them side by side.
#define MILLRACE_HOST_MEMBERS(operation, slot, least, body) \
    MILLRACE_HOST_KERNELS(operation, \
                          for (int member = 0; member < bound[operation::slot].k; ++member) body<double>(bound, member), \
                          host::make_members(context, bound, operation::slot, least, body<float>))

/// body<T>(bound, matrix, begin, end) for all rows of a slot; `work`: about so many elements each.
#define MILLRACE_HOST_PIECES(operation, slot, work, body) \
    MILLRACE_HOST_KERNELS(operation, host::run_rows(bound, operation::slot, body<double>), \
                          host::make_rows(context, bound, operation::slot, work, body<float>))

/// body<T>(bound, matrix, row) likewise; behind it a function of `bound` for the calling thread, if any.
#define MILLRACE_HOST_ROWS(operation, slot, work, body, ...) \
    MILLRACE_HOST_KERNELS( \
        operation, host::run_rows(bound, operation::slot, host::each_row(body<double>) __VA_OPT__(, ) __VA_ARGS__), \
        host::make_rows(context, bound, operation::slot, work, host::each_row(body<float>) __VA_OPT__(, ) __VA_ARGS__))

#define MILLRACE_HOST_KERNELS(operation, run, make) \
    namespace ref { \
    void run_##operation(const Bound& bound) { run; } \
    } \
    namespace cpu { \
    KernelResult make_##operation([[maybe_unused]] Context& context, const Bound& bound) { return make; } \
    } \
    static_assert(true)  // wants a semicolon behind it
