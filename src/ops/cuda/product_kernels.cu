// Kernels beside the library's products. One for shapes and alignments that cuBLASLt does not take: right first, 16 x 16 tiles
// through shared memory. And operands of a strict f32 product as three numbers of bf16 each, which together are the number: six
// products of these on tensor cores keep f32's error. The pairs lie behind each other along the summed dimension, the smallest
// first, so that one product of the library multiplies and sums them all.

#include "ops/cuda/vector.cuh"

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

constexpr int kPairs = 6, kRun = 8, kThreads = 256;

/// Where the parts of one operand go.
struct Split {
    Mat<const float> in;
    Mat<bf16> out;
    std::int64_t pair_stride;  ///< elements from one pair's part to the next one's, in a row or between matrices
    int groups, matrices, rows, cols;
    int all_rows, runs;  ///< with those of zeros that fill them up to eights
    int order[kPairs];   ///< which part each pair takes
    bool whole;          ///< rows begin at multiples of 16 bytes
};
struct Splits {
    Split of[2];
};

__global__ void __launch_bounds__(kThreads) split_kernel(const __grid_constant__ Splits splits) {
    begin_kernel();
    const Split& s = splits.of[blockIdx.y];
    const std::int64_t all = std::int64_t{s.matrices} * s.all_rows * s.runs, stride = std::int64_t{kThreads} * gridDim.x;
    for (std::int64_t i = std::int64_t{kThreads} * blockIdx.x + threadIdx.x; i < all; i += stride) {
        const int column = static_cast<int>(i % s.runs) * kRun, row = static_cast<int>(i / s.runs % s.all_rows);
        const int matrix = static_cast<int>(i / s.runs / s.all_rows), k = matrix / s.groups, g = matrix % s.groups;
        const float* from = s.in.row(k, g, row) + column;
        float v[kRun];
        if (s.whole && row < s.rows && column + kRun <= s.cols) {
            load_run(from, v);
        } else {
#pragma unroll
            for (int j = 0; j < kRun; ++j) v[j] = row < s.rows && column + j < s.cols ? from[j] : 0;
        }
        uint4 part[3];
#pragma unroll
        for (uint4& p : part)
            p = make_uint4(take_pair(v[0], v[1]), take_pair(v[2], v[3]), take_pair(v[4], v[5]), take_pair(v[6], v[7]));
        bf16* to = s.out.row(k, g, row) + column;
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
            const int which = s.order[pair];
            *reinterpret_cast<uint4*>(to + pair * s.pair_stride) = which == 0 ? part[0] : which == 1 ? part[1] : part[2];
        }
    }
}

int filled_up(int count) { return (count + kRun - 1) / kRun * kRun; }

/// Lays out an operand's parts at `data`: pairs behind each other in a row, or all rows of a pair behind those of the last one.
Split split_of(const Operand& in, bool along_rows, const int (&order)[kPairs], std::byte* data, Operand& out) {
    const int columns = filled_up(in.cols), rows = along_rows ? filled_up(in.rows) : in.rows;
    const std::int64_t matrix = std::int64_t{kPairs} * rows * columns;
    out = in;
    out.data = data;
    out.dtype = tensor::DType::bf16;
    out.stride_g = in.stride_g == 0 ? 0 : matrix;  // what is one matrix for all stays one
    out.stride_k = in.stride_k == 0 ? 0 : matrix * in.g;
    out.stride_row = along_rows ? columns : kPairs * columns;
    (along_rows ? out.rows : out.cols) = kPairs * (along_rows ? rows : columns);
    const std::int64_t pair_stride = along_rows ? std::int64_t{rows} * columns : columns;
    Split split{in, out, pair_stride, in.g, in.k * in.g, in.rows, in.cols, rows, columns / kRun, {}, whole_runs(in)};
    std::copy_n(order, kPairs, split.order);
    return split;
}

std::size_t bytes_of(const Operand& in) {
    return sizeof(bf16) * kPairs * static_cast<std::size_t>(in.k) * in.g * filled_up(in.rows) * filled_up(in.cols);
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

KernelResult make_parts(Context& c, Product kind, const Operand& a, const Operand& b, Operand& a_parts, Operand& b_parts) {
    constexpr int kLeft[kPairs] = {2, 0, 1, 1, 0, 0}, kRight[kPairs] = {0, 2, 1, 0, 1, 0};
    MILLRACE_LET(memory, lend_table(c, bytes_of(a) + bytes_of(b)));
    auto* const data = static_cast<std::byte*>(memory.get());
    const Splits splits{{split_of(a, kind == Product::wgrad, kLeft, data, a_parts),
                         split_of(b, kind != Product::forward, kRight, data + bytes_of(a), b_parts)}};
    const dim3 grid(static_cast<unsigned>(8 * c.multiprocessors), 2);
    return make_kernel(
        [stream = c.stream, splits, grid, memory] { launch(split_kernel, grid, dim3(kThreads), 0, stream, splits); });
}

}  // namespace millrace::ops::cuda
