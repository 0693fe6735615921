// A product for shapes and alignments that cuBLASLt does not take: right first, 16 x 16 tiles through shared memory.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kTile = 16;

/// c[m][n] (+)= sum over s of a(m, s) b(s, n), with the strides of each index.
template <class In, class Out>
struct ProductArgs {
    Mat<const In> a, b;
    Mat<Out> c;
    std::int64_t a_m, a_s, b_s, b_n;
    int groups, rows, cols, summed;
    bool accumulate;
};

template <class In, class Out>
__global__ void product_kernel(const __grid_constant__ ProductArgs<In, Out> p) {
    __shared__ float a[kTile][kTile + 1], b[kTile][kTile + 1];
    begin_kernel();
    const int k = blockIdx.z / p.groups, g = blockIdx.z % p.groups;
    const int m = blockIdx.y * kTile + threadIdx.y, n = blockIdx.x * kTile + threadIdx.x;
    const In *pa = p.a.row(k, g, 0), *pb = p.b.row(k, g, 0);
    float sum = 0;
    for (int s0 = 0; s0 < p.summed; s0 += kTile) {
        const int sa = s0 + threadIdx.x, sb = s0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = m < p.rows && sa < p.summed ? load(pa + m * p.a_m + sa * p.a_s) : 0;
        b[threadIdx.y][threadIdx.x] = n < p.cols && sb < p.summed ? load(pb + sb * p.b_s + n * p.b_n) : 0;
        __syncthreads();
        for (int s = 0; s < kTile; ++s) sum += a[threadIdx.y][s] * b[s][threadIdx.x];
        __syncthreads();
    }
    if (m >= p.rows || n >= p.cols) return;
    Out* out = p.c.row(k, g, m) + n;
    store(out, p.accumulate ? load(out) + sum : sum);
}

template <class In, class Out>
void enqueue(cudaStream_t stream, Product kind, const Operand& a, const Operand& b, const Operand& c, bool accumulate) {
    const bool forward = kind == Product::forward, wgrad = kind == Product::wgrad;
    const ProductArgs<In, Out> p{.a = a,
                                 .b = b,
                                 .c = c,
                                 .a_m = wgrad ? 1 : a.stride_row,
                                 .a_s = wgrad ? a.stride_row : 1,
                                 .b_s = forward ? 1 : b.stride_row,
                                 .b_n = forward ? b.stride_row : 1,
                                 .groups = c.g,
                                 .rows = c.rows,
                                 .cols = c.cols,
                                 .summed = wgrad ? a.rows : a.cols,
                                 .accumulate = accumulate};
    launch(product_kernel<In, Out>, dim3(blocks_for(c.cols, kTile), blocks_for(c.rows, kTile), c.k * c.g), dim3(kTile, kTile), 0,
           stream, p);
}

}  // namespace

void launch_plain_product(cudaStream_t stream, Product kind, const Operand& a, const Operand& b, const Operand& c,
                          bool accumulate) {
    if (c.count() == 0) return;
    by_real(a.dtype, [&]<class T>(T) {
        if (c.dtype == DType::f32)
            enqueue<T, float>(stream, kind, a, b, c, accumulate);
        else
            enqueue<T, T>(stream, kind, a, b, c, accumulate);
    });
}

}  // namespace millrace::ops::cuda
