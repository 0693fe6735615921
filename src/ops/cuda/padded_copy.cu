// A matrix copied to rows that begin at multiples of 16 bytes: tensor cores take no others, and a layer's weights may have any
// width and begin anywhere in the arena.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

template <class T>
__global__ void pad_kernel(Mat<const T> in, Mat<T> out, int groups, int rows, int in_cols, int out_cols) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x))
        for (int c = static_cast<int>(threadIdx.x); c < out_cols; c += static_cast<int>(blockDim.x))
            out.row(k, g, r)[c] = c < in_cols ? in.row(k, g, r)[c] : T(0.0f);
}

}  // namespace

KernelResult make_padded_copy(Context& c, const Operand& in, int cols, Operand& out) {
    out = in;
    out.cols = cols;
    out.stride_row = (cols + 7) / 8 * 8;
    const std::int64_t matrix = out.stride_row * in.rows;
    out.stride_g = in.stride_g == 0 ? 0 : matrix;  // what is one matrix for all stays one
    out.stride_k = in.stride_k == 0 ? 0 : matrix * in.g;
    MILLRACE_LET(memory, zero_table(c, static_cast<std::size_t>(matrix * in.g * in.k) * tensor::size_of(in.dtype)));
    out.data = memory.get();
    if (matrix * in.g * in.k == 0) return make_kernel([] {});
    const dim3 grid(std::min(in.rows, 4096), 1, in.k * in.g);
    return by_real(in.dtype, [&]<class T>(T) {
        return make_kernel([stream = c.stream, grid, in, to = out, memory] {
            launch(pad_kernel<T>, grid, dim3(128), 0, stream, in, to, in.g, in.rows, in.cols, to.cols);
        });
    });
}

KernelResult share_padded_copy(Context& c, const Operand& in, int cols, Operand& out) {
    const auto same = [&](const PaddedCopy& p) {
        return c.is_current(in, p.made) && p.in.data == in.data && p.in.dtype == in.dtype && p.in.k == in.k && p.in.g == in.g &&
               p.in.rows == in.rows && p.in.cols == in.cols && p.in.stride_k == in.stride_k && p.in.stride_g == in.stride_g &&
               p.in.stride_row == in.stride_row && p.out.cols == cols;
    };
    const auto found = std::find_if(c.padded.begin(), c.padded.end(), same);
    if (found != c.padded.end()) {
        out = found->out;
        return make_kernel([held = found->copy] {});
    }
    const std::size_t copied_at = c.copied_at();
    if (!c.is_current(in, copied_at)) return make_padded_copy(c, in, cols, out);  // written by the region itself
    const cudaStream_t own = c.stream;
    if (c.ahead != nullptr) c.stream = c.ahead_stream;
    auto made = make_padded_copy(c, in, cols, out);
    c.stream = own;
    if (!made.ok()) return made.error();
    c.padded.push_back({in, out, std::shared_ptr<Kernel>(std::move(*made)), copied_at});
    if (c.ahead != nullptr) {
        c.ahead->push_back(c.padded.back().copy);
        return make_kernel([held = c.padded.back().copy] {});
    }
    return make_kernel([copy = c.padded.back().copy] { copy->run(); });
}

}  // namespace millrace::ops::cuda
