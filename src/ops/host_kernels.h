#pragma once
// Operators whose reference and CPU kernel are one template: the reference runs it in double and in order, the CPU in float on
// all threads. Each macro defines ref::run_NAME and cpu::make_NAME of the current namespace. A body may take loops as its last
// argument: const host::Loops<T>&. Only files that define these include this.

#include <cmath>
#include <type_traits>

#include "ops/cpu/kernel.h"

namespace millrace::ops::host {

/// Loops of cpu::SimdKernels in double, in order.
struct PlainLoops {
    static void add_rows(int n, const double* a, const double* b, double* y, bool add) {
        for (int i = 0; i < n; ++i) y[i] = (add ? y[i] : 0) + a[i] + (b != nullptr ? b[i] : 0);
    }
    static void scale_row(int n, double factor, double* y) {
        for (int i = 0; i < n; ++i) y[i] *= factor;
    }
    static int largest(int n, const double* x) {
        int best = 0;
        for (int i = 1; i < n; ++i)
            if (x[i] > x[best] || std::isnan(x[best])) best = i;
        return std::isnan(x[best]) ? 0 : best;
    }
    static double exp_sum(int n, const double* x, double top, double* out) {
        double sum = 0;
        for (int i = 0; i < n; ++i) {
            const double e = std::exp(x[i] - top);
            if (out != nullptr) out[i] = e;
            sum += e;
        }
        return sum;
    }
    static double squared_distance(int n, const double* a, const double* b, double factor, double* gradient) {
        double squares = 0;
        for (int i = 0; i < n; ++i) {
            const double difference = a[i] - b[i];
            squares += difference * difference;
            if (gradient != nullptr) gradient[i] = difference * factor;
        }
        return squares;
    }
    static void pixels(std::int64_t n, const std::uint8_t* in, double scale, double shift, double* out) {
        for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] * scale + shift;
    }

    struct RowNorm {
        double mean, inv_std;
    };
    static RowNorm layernorm_row(int n, const double* x, const double* gamma, const double* beta, double eps, double* y) {
        double sum = 0, squares = 0;
        for (int i = 0; i < n; ++i) sum += x[i];
        const double mean = sum / n;
        for (int i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
        const double inv_std = 1 / std::sqrt(squares / n + eps);
        for (int i = 0; i < n; ++i) y[i] = gamma[i] * (x[i] - mean) * inv_std + beta[i];
        return {mean, inv_std};
    }
    static void layernorm_row_backward(int n, const double* dy, const double* x, const double* gamma, RowNorm norm, double* dx,
                                       bool add) {
        double sum = 0, sum_hat = 0;
        for (int i = 0; i < n; ++i) {
            sum += gamma[i] * dy[i];
            sum_hat += gamma[i] * dy[i] * (x[i] - norm.mean) * norm.inv_std;
        }
        for (int i = 0; i < n; ++i) {
            const double hat = (x[i] - norm.mean) * norm.inv_std;
            dx[i] = (add ? dx[i] : 0) + norm.inv_std * (gamma[i] * dy[i] - sum / n - hat * sum_hat / n);
        }
    }
    static void gru_row_backward(int width, const double* gates, const double* h, double* dgates, double* dh) {
        const double *r = gates, *z = r + width, *n = z + width, *hn = n + width;
        for (int j = 0; j < width; ++j) {
            const double d = dh[j], dn = d * (1 - z[j]) * (1 - n[j] * n[j]);
            dgates[j] = dn * hn[j] * r[j] * (1 - r[j]);
            dgates[width + j] = d * (h[j] - n[j]) * z[j] * (1 - z[j]);
            dgates[2 * width + j] = dn;
            dgates[3 * width + j] = dn * r[j];
            dh[j] = d * z[j];
        }
    }
};
template <class T>
using Loops = std::conditional_t<std::is_same_v<T, double>, PlainLoops, cpu::SimdKernels>;

template <class Body, class Loops, class... Numbers>
void call(const Body& body, const Loops& loops, const Bound& bound, Numbers... numbers) {
    if constexpr (std::is_invocable_v<Body, const Bound&, Numbers..., const Loops&>)
        body(bound, numbers..., loops);
    else
        body(bound, numbers...);
}

/// A function of (bound, matrix, row) for rows [begin, end) of a matrix, whose number is member * groups + group.
template <class Row>
auto each_row(Row row_of) {
    return [row_of](const Bound& bound, int matrix, int begin, int end, const auto& loops) {
        for (int row = begin; row < end; ++row) call(row_of, loops, bound, matrix, row);
    };
}

/// rows(bound, matrix, begin, end) for all rows of a slot, then last(bound).
template <class Rows>
void run_rows(const Bound& bound, int slot, Rows rows, void (*last)(const Bound&) = nullptr) {
    for (int matrix = 0; matrix < bound[slot].k * bound[slot].g; ++matrix)
        call(rows, PlainLoops{}, bound, matrix, 0, bound[slot].rows);
    if (last != nullptr) last(bound);
}
template <class Rows>
KernelResult make_rows(cpu::Context& context, const Bound& bound, int slot, std::int64_t work, Rows rows,
                       void (*last)(const Bound&) = nullptr) {
    return cpu::make_kernel([&context, b = bound, slot, work, rows, last]() noexcept {
        cpu::for_each_piece(context, b[slot].k * b[slot].g, b[slot].rows, work,
                            [&](int matrix, int begin, int end) { call(rows, context.simd, b, matrix, begin, end); });
        if (last != nullptr) last(b);
    });
}

/// body(bound, member) for all members of a slot; on the CPU side by side from `least` elements on.
template <class Body>
void run_members(const Bound& bound, int slot, Body body) {
    for (int member = 0; member < bound[slot].k; ++member) call(body, PlainLoops{}, bound, member);
}
template <class Body>
KernelResult make_members(cpu::Context& context, const Bound& bound, int slot, std::int64_t least, Body body) {
    return cpu::make_kernel([&context, b = bound, slot, least, body]() noexcept {
        const tensor::Operand& in = b[slot];
        context.pool.for_each_if(in.k > 1 && in.count() >= least, in.k,
                                 [&](int member, int) { call(body, context.simd, b, member); });
    });
}

}  // namespace millrace::ops::host

/// body<T>(bound) at once on the calling thread.
#define MILLRACE_HOST_AT_ONCE(operation, body) \
    MILLRACE_HOST_KERNELS(operation, body<double>(bound), cpu::make_kernel([b = bound]() noexcept { body<float>(b); }))

/// body<T>(bound, member) for all members of a slot; `least`: elements from which on the CPU does them side by side.
#define MILLRACE_HOST_MEMBERS(operation, slot, least, body) \
    MILLRACE_HOST_KERNELS(operation, host::run_members(bound, operation::slot, body<double>), \
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
