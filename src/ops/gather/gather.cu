// Rows of resident data in the order of the pass.

#include <cuda_fp16.h>

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/gather/gather.h"
#include "ops/gather/windows.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

struct Affine {
    float cosine, sine, dx, dy, scale;
    bool flip;
};

__device__ Affine draw_affine(const GatherImagesParams& p, const MemberState& m, int row) {
    float u[5];
    for (int j = 0; j < 5; ++j)
        u[j] = base::uniform01(base::random_bits(m.seed, m.step, m.micro, p.op_number, static_cast<std::uint64_t>(row) * 8 + j));
    const float angle = (2 * u[0] - 1) * p.rotate * 0.017453292519943295f;
    Affine a;
    a.cosine = cosf(angle);
    a.sine = sinf(angle);
    a.dx = floorf((2 * u[1] - 1) * p.shift * static_cast<float>(p.width) + 0.5f);
    a.dy = floorf((2 * u[2] - 1) * p.shift * static_cast<float>(p.height) + 0.5f);
    a.scale = 1 + (2 * u[3] - 1) * p.scale;
    a.flip = u[4] < p.flip;
    return a;
}

__device__ int affine_pixel(const Affine& a, const GatherImagesParams& p, const std::uint8_t* image, int pixel, int channel) {
    const int width = static_cast<int>(p.width), height = static_cast<int>(p.height);
    const float centre_x = 0.5f * static_cast<float>(width - 1), centre_y = 0.5f * static_cast<float>(height - 1);
    int u = pixel % width;
    const int v = pixel / width;
    if (a.flip) u = width - 1 - u;
    const float x = (static_cast<float>(u) - centre_x - a.dx) / a.scale, y = (static_cast<float>(v) - centre_y - a.dy) / a.scale;
    const int column = static_cast<int>(floorf(a.cosine * x + a.sine * y + centre_x + 0.5f));
    const int line = static_cast<int>(floorf(a.cosine * y - a.sine * x + centre_y + 0.5f));
    if (column < 0 || column >= width || line < 0 || line >= height) return 0;
    return image[(line * width + column) * static_cast<int>(p.channels) + channel];
}

/// Which sample row b of the micro-batch is, by its number where there is no subset; any behind the end of the pass.
template <class P>
__device__ std::int32_t sample_of(const P& p, const MemberState& m, const std::int32_t* subset, int b) {
    const std::uint32_t q = (p.training ? m.position : m.eval_position) + b;
    if (q >= p.samples) return 0;
    if constexpr (requires { p.window; })
        if (p.window > 0) return static_cast<std::int32_t>(window_row(p, m.seed, m.epoch, q));
    const std::uint32_t place = p.shuffle ? base::shuffled_index(m.seed, m.epoch, q, p.samples) : q;
    return subset != nullptr ? subset[place] : static_cast<std::int32_t>(place);
}

constexpr int kImageThreads = 256, kImageBlocks = 6;  ///< threads of a block, blocks of a multiprocessor
constexpr int kImageRows = 32;                        ///< that a block takes at most

struct ImagesArgs {
    const std::uint8_t* images;
    const std::int32_t* labels;
    std::int64_t image_stride, label_stride;
    const std::int32_t* subset;
    States states;
    int rows, pixels, rows_per_block;
    GatherImagesParams p;
};

/// Blocks of neighbouring rows, whose samples are found side by side: that takes longer than copying one. A pixel has 256 values,
/// so they are normalised once for each channel. kPixels of a thread at once fill 16 bytes of x and lie at multiples of kPixels
/// in both, or are 1.
template <class T, int kPixels>
__global__ void __launch_bounds__(kImageThreads, blocks_at_once(kImageThreads, kImageBlocks))
    gather_kernel(const __grid_constant__ ImagesArgs a, Mat<T> x, Mat<std::int32_t> y) {
    __shared__ std::int32_t chosen[kImageRows];
    __shared__ Affine affine[kImageRows];
    __shared__ T levels[kMostChannels][256];
    static_assert(kImageThreads == 256);
    const int channels = static_cast<int>(a.p.channels);
    const int first = blockIdx.x * a.rows_per_block, k = blockIdx.y, count = min(a.rows_per_block, a.rows - first);
    for (int c = 0; c < channels; ++c)
        store(levels[c] + threadIdx.x, (static_cast<float>(threadIdx.x) / 255 - a.p.mean[c]) / a.p.std[c]);
    begin_kernel();
    if (static_cast<int>(threadIdx.x) < count) {
        const MemberState& m = a.states[k];
        const int b = first + static_cast<int>(threadIdx.x);
        const std::int32_t sample = sample_of(a.p, m, a.subset, b);
        chosen[threadIdx.x] = sample;
        if (a.p.augment) affine[threadIdx.x] = draw_affine(a.p, m, b);
        if (a.labels != nullptr) *y.row(k, 0, b) = a.labels[sample * a.label_stride];
    }
    __syncthreads();
    const auto image_of = [&](int row) { return a.images + chosen[row] * a.image_stride; };
    if (a.p.augment) {
        for (int i = threadIdx.x; i < count * a.pixels; i += kImageThreads) {
            const int row = i / a.pixels, at = i - row * a.pixels, pixel = at / channels, c = at - pixel * channels;
            x.row(k, 0, first + row)[at] = levels[c][affine_pixel(affine[row], a.p, image_of(row), pixel, c)];
        }
        return;
    }
    const int runs = a.pixels / kPixels;
    for (int i = threadIdx.x; i < count * runs; i += kImageThreads) {
        const int row = i / runs, at = (i - row * runs) * kPixels;
        const Run<std::uint8_t, kPixels> from = load_as_stored<kPixels>(image_of(row) + at);
        Run<T, kPixels> to;
#pragma unroll
        for (int j = 0; j < kPixels; ++j) to.v[j] = levels[channels == 1 ? 0 : (at + j) % channels][from.v[j]];
        store_as_stored(x.row(k, 0, first + row) + at, to);
    }
}

template <class From, class T>
__global__ void gather_rows_kernel(const From* table, std::int64_t stride, const std::int32_t* subset, States states, Mat<T> out,
                                   int cols, GatherRowsParams p) {
    begin_kernel();
    const int b = blockIdx.x, k = blockIdx.y;
    __shared__ std::int32_t chosen;
    if (threadIdx.x == 0) {
        chosen = sample_of(p, states[k], subset, b);
    }
    __syncthreads();
    const From* from = table + chosen * stride;
    T* to = out.row(k, 0, b);
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        if constexpr (std::is_same_v<From, T>)
            to[i] = from[i];
        else
            store(to + i, from[i]);
}

struct FeaturesArgs {
    const __half* table;
    std::int64_t stride;
    Mat<const std::int32_t> labels;
    const float *mean, *inverse;
    const std::int32_t* subset;
    States states;
    int rows, cols;
    GatherFeaturesParams p;
};

/// A warp per row.
template <class T>
__global__ void gather_features_kernel(const __grid_constant__ FeaturesArgs a, Mat<T> x, Mat<std::int32_t> y) {
    begin_kernel();
    const int b = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, k = blockIdx.y, lane = threadIdx.x % 32;
    if (b >= a.rows) return;
    const MemberState& m = a.states[k];
    const std::int32_t chosen = sample_of(a.p, m, a.subset, b);
    int first = 0, masked = 0;
    if (a.p.mask > 0) {
        const auto unit = [&](int j) {
            return base::uniform01(
                base::random_bits(m.seed, m.step, m.micro, a.p.op_number, static_cast<std::uint64_t>(b) * 2 + j));
        };
        masked = min(a.cols, static_cast<int>(unit(0) * static_cast<float>(a.p.mask + 1)));
        first = static_cast<int>(unit(1) * static_cast<float>(a.cols - masked + 1));
    }
    const __half* from = a.table + chosen * a.stride;
    T* out = x.row(k, 0, b);
    for (int d = lane; d < a.cols; d += 32) {
        const bool hidden = d >= first && d < first + masked;
        store(out + d, hidden ? 0.0f : (__half2float(from[d]) - a.mean[d]) * a.inverse[d]);
    }
    if (lane == 0) *y.row(k, 0, b) = *a.labels.row(0, 0, chosen / static_cast<int>(a.p.rows_per_label));
}

/// A warp per row.
__global__ void gather_windows_kernel(const __grid_constant__ Windows a) {
    begin_kernel();
    const int b = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, k = blockIdx.y, lane = threadIdx.x % 32;
    if (b >= a.rows) return;
    const TokenWindow window = a.find(k, b);
    std::int32_t* to = a.out.row(k, 0, b);
    for (int c = lane; c < a.cols; c += 32) to[c] = a.token(window, c);
    if (lane == 0) *a.lengths.row(k, 0, b) = a.length(window);
}

}  // namespace

KernelResult make_gather_images(Context& c, const Bound& b) {
    const Operand &images = b[gather_images::images], &labels = b[gather_images::labels], &x = b[gather_images::x];
    // So many rows of a block that all blocks run at once.
    const unsigned rows = blocks_for(std::int64_t{x.rows} * x.k, kImageBlocks * c.multiprocessors);
    const ImagesArgs a{.images = static_cast<const std::uint8_t*>(images.data),
                       .labels = static_cast<const std::int32_t*>(labels.data),
                       .image_stride = images.stride_row,
                       .label_stride = labels.stride_row,
                       .subset = static_cast<const std::int32_t*>(b[gather_images::subset].data),
                       .states = b[gather_images::state],
                       .rows = x.rows,
                       .pixels = x.cols,
                       .rows_per_block = static_cast<int>(std::min<unsigned>(rows, kImageRows)),
                       .p = b.params<GatherImagesParams>()};
    return by_real(x.dtype, [&]<class T>(T) {
        constexpr int kPixels = 16 / sizeof(T);
        const bool whole = x.cols % kPixels == 0 && whole_runs(x) && images.stride_row % kPixels == 0 &&
                           reinterpret_cast<std::uintptr_t>(images.data) % kPixels == 0;
        return make_launch(c, whole ? gather_kernel<T, kPixels> : gather_kernel<T, 1>,
                           dim3(blocks_for(x.rows, a.rows_per_block), x.k), dim3(kImageThreads), 0, a, x, b[gather_images::y]);
    });
}

KernelResult make_gather_rows(Context& c, const Bound& b) {
    const Operand &table = b[gather_rows::table], &subset = b[gather_rows::subset], &s = b[gather_rows::state];
    const Operand& out = b[gather_rows::out];
    const auto& p = b.params<GatherRowsParams>();
    auto make = [&]<class From, class T>(From, T) {
        return make_launch(c, gather_rows_kernel<From, T>, dim3(out.rows, out.k), dim3(128), 0,
                           static_cast<const From*>(table.data), table.stride_row, static_cast<const std::int32_t*>(subset.data),
                           s, out, out.cols, p);
    };
    if (out.dtype == DType::i32) return make(std::int32_t{}, std::int32_t{});
    return by_real(out.dtype, [&]<class T>(T real) { return make(float{}, real); });
}

KernelResult make_gather_features(Context& c, const Bound& b) {
    using namespace gather_features;
    const Operand& out = b[x];
    const FeaturesArgs a{static_cast<const __half*>(b[table].data),
                         b[table].stride_row,
                         b[labels],
                         static_cast<const float*>(b[mean].data),
                         static_cast<const float*>(b[inverse].data),
                         static_cast<const std::int32_t*>(b[subset].data),
                         b[state],
                         out.rows,
                         out.cols,
                         b.params<GatherFeaturesParams>()};
    return by_real(out.dtype, [&]<class T>(T) {
        return make_launch(c, gather_features_kernel<T>, dim3(blocks_for(out.rows, 4), out.k), dim3(128), 0, a, out, b[y]);
    });
}

KernelResult make_gather_windows(Context& c, const Bound& b) {
    const Windows a = windows_of(b);
    return make_launch(c, gather_windows_kernel, dim3(blocks_for(a.rows, 4), b[gather_windows::out].k), dim3(128), 0, a);
}

}  // namespace millrace::ops::cuda
