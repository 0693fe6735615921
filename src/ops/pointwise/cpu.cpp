#include <algorithm>
#include <cstring>

#include "ops/cpu/kernel.h"
#include "ops/cpu/random_mask.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// One element type of `copy` and `fill`: how to read and write it as double or, where that is exact, as itself.
struct Bf16 {
    std::uint16_t bits;
};
struct F16 {
    std::uint16_t bits;
};
inline double widen(double v) { return v; }
inline double widen(float v) { return static_cast<double>(v); }
inline double widen(std::int32_t v) { return v; }
inline double widen(Bf16 v) { return static_cast<double>(tensor::from_bf16(v.bits)); }
inline double widen(F16 v) { return static_cast<double>(tensor::from_f16(v.bits)); }
inline void narrow(double v, double& out) { out = v; }
inline void narrow(double v, float& out) { out = static_cast<float>(v); }
inline void narrow(double v, std::int32_t& out) { out = static_cast<std::int32_t>(v); }
inline void narrow(double v, Bf16& out) { out.bits = tensor::to_bf16(static_cast<float>(v)); }
inline void narrow(double v, F16& out) { out.bits = tensor::to_f16(static_cast<float>(v)); }

template <class From, class To>
void convert_row(const void* in, void* out, std::int64_t n) {
    const auto* from = static_cast<const From*>(in);
    auto* to = static_cast<To*>(out);
    if constexpr (std::is_same_v<From, To>) {
        std::memmove(to, from, static_cast<std::size_t>(n) * sizeof(To));
    } else {
        for (std::int64_t i = 0; i < n; ++i) narrow(widen(from[i]), to[i]);
    }
}

using ConvertRow = void (*)(const void*, void*, std::int64_t);

template <class From>
ConvertRow converter_from(DType to) {
    switch (to) {
        case DType::f64: return convert_row<From, double>;
        case DType::f32: return convert_row<From, float>;
        case DType::bf16: return convert_row<From, Bf16>;
        case DType::f16: return convert_row<From, F16>;
        case DType::i32: return convert_row<From, std::int32_t>;
        case DType::u8: break;
    }
    return nullptr;
}

ConvertRow converter(DType from, DType to) {
    switch (from) {
        case DType::f64: return converter_from<double>(to);
        case DType::f32: return converter_from<float>(to);
        case DType::bf16: return converter_from<Bf16>(to);
        case DType::f16: return converter_from<F16>(to);
        case DType::i32: return converter_from<std::int32_t>(to);
        case DType::u8: break;
    }
    return nullptr;
}

template <class T>
void fill_row(double value, void* out, std::int64_t n) {
    T element;
    narrow(value, element);
    std::fill_n(static_cast<T*>(out), n, element);
}

std::byte* row_address(const Operand& o, int member, int group, int row) {
    const std::int64_t element = member * o.stride_k + group * o.stride_g + row * o.stride_row;
    return static_cast<std::byte*>(o.data) + element * static_cast<std::int64_t>(tensor::size_of(o.dtype));
}

}  // namespace

KernelResult make_fill(Context& context, const Bound& bound) {
    const Operand out = bound[fill::out];
    auto* fill_one = out.dtype == DType::f64   ? fill_row<double>
                     : out.dtype == DType::f32 ? fill_row<float>
                     : out.dtype == DType::i32 ? fill_row<std::int32_t>
                     : out.dtype == DType::f16 ? fill_row<F16>
                                               : fill_row<Bf16>;
    return make_kernel([&context, out, fill_one, value = bound.params<FillParams>().value]() noexcept {
        for_each_row(context, out,
                     [&](int member, int group, int row) { fill_one(value, row_address(out, member, group, row), out.cols); });
    });
}

KernelResult make_copy(Context& context, const Bound& bound) {
    const Operand in = bound[copy::in], out = bound[copy::out];
    const ConvertRow convert = converter(in.dtype, out.dtype);
    return make_kernel([&context, in, out, convert]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            convert(row_address(in, member, group, row), row_address(out, member, group, row), out.cols);
        });
    });
}

KernelResult make_add(Context& context, const Bound& bound) {
    const Operand a = bound[add::a], b = bound[add::b], out = bound[add::out];
    return make_kernel([&context, a, b, out, accumulate = bound.accumulates(add::out)]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            const float* left = a.at<float>(member, group, row);
            const float* right = b.present() ? b.at<float>(member, group, row) : nullptr;
            float* to = out.at<float>(member, group, row);
            context.simd.add_rows(out.cols, left, right, to, accumulate);
        });
    });
}

KernelResult make_pointwise_forward(Context& context, const Bound& bound) {
    using namespace pointwise_forward;
    const auto p = bound.params<PointwiseParams>();
    const Operand out = bound[y];
    return make_kernel([&context, p, in = bound[x], out, states = bound[state]]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            for (int col = 0; col < out.cols; col += kMaxColumns) {
                ColumnPass pass{};
                pass.rows = 1;
                pass.cols = std::min(kMaxColumns, out.cols - col);
                pass.x = in.at<float>(member, group, row) + col;
                pass.y = out.at<float>(member, group, row) + col;
                pass.activation = static_cast<std::uint8_t>(p.activation);
                set_dropout(pass, p, states, out, {member, group, row, col});
                context.simd.column_pass(pass);
            }
        });
    });
}

KernelResult make_pointwise_backward(Context& context, const Bound& bound) {
    using namespace pointwise_backward;
    const auto p = bound.params<PointwiseParams>();
    const Operand out = bound[dx];
    return make_kernel([&context, p, grad = bound[dy], in = bound[x], states = bound[state], out,
                        accumulate = bound.accumulates(dx)]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            for (int col = 0; col < out.cols; col += kMaxColumns) {
                float du[kMaxColumns], sum[kMaxColumns];
                ColumnBackward pass{};
                pass.rows = 1;
                pass.cols = std::min(kMaxColumns, out.cols - col);
                pass.dy = grad.at<float>(member, group, row) + col;
                pass.saved = in.at<float>(member, group, row) + col;
                pass.du = du;
                pass.sum = sum;
                pass.activation = static_cast<std::uint8_t>(p.activation);
                set_dropout(pass, p, states, out, {member, group, row, col});
                context.simd.column_backward(pass);
                float* to = out.at<float>(member, group, row) + col;
                for (int i = 0; i < pass.cols; ++i) to[i] = accumulate ? to[i] + du[i] : du[i];
            }
        });
    });
}

}  // namespace millrace::ops::cpu
