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
    auto memory = DeviceTable::zeros(c, static_cast<std::size_t>(matrix * in.g * in.k) * tensor::size_of(in.dtype));
    if (!memory.ok()) return memory.error();
    out.data = memory->data();
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        return make_kernel([stream = c.stream, in, to = out, held = std::make_shared<DeviceTable>(std::move(*memory))] {
            launch(pad_kernel<T>, dim3(static_cast<unsigned>(std::min(in.rows, 4096)), 1, static_cast<unsigned>(in.k * in.g)),
                   dim3(128), 0, stream, mat<const T>(in), mat<T>(to), in.g, in.rows, in.cols, to.cols);
        });
    });
}

}  // namespace millrace::ops::cuda
