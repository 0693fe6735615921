// The sum of the squares of a weight gradient dw = dz^T x without dw. With the inner products of the rows of the batch,
//   sum over all elements of dw^2 = sum over rows i, j of (dz_i . dz_j) (x_i . x_j),
// which takes rows^2 (outputs + inputs) products instead of rows outputs inputs, and reads each operand once. Terms have both
// signs, so the sum loses digits where dw is much smaller than its terms: inputs that vary by a tenth around their mean behind a
// norm cost 0.03 % of the norm on an H200. Where it would lose more, the rows of x are nearly one, and dw itself is computed, 64
// x 64 elements at a time.

#include <vector>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/squares.h"
#include "ops/dense/forms.h"
#include "ops/tile/element.cuh"
#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// Three warpgroups: rows 0-63 with themselves, with rows 64-127, and the latter with themselves.
constexpr int kThreads = 3 * 128, kRows = 128, kDepth = 128, kStages = 6;
/// Of operands in parts of 64 columns, each as hopper.cuh says.
constexpr std::uint32_t kHalfBytes = kRows / 2 * 128, kPartBytes = 2 * kHalfBytes, kStageBytes = kDepth / 64 * kPartBytes;
constexpr std::size_t kBytes = 1024 + kStages * kStageBytes + 2 * kPartBytes;  // the last parts hold columns of dz and of x
/// Less than this of the sum of its terms' sizes is left of a sum of squares: the gradient is computed.
constexpr float kCancelled = 1.0f / 1024;

/// One matrix of a gradient.
template <class T>
struct Unit {
    const T *dz, *x;
    float* squares;
    std::int32_t ld_dz, ld_x;
    std::int32_t rows, outputs, inputs;

    __host__ __device__ int steps_dz() const { return (outputs + kDepth - 1) / kDepth; }
    __host__ __device__ int steps_x() const { return (inputs + kDepth - 1) / kDepth; }
};

__device__ int next(int stage) { return stage + 1 == kStages ? 0 : stage + 1; }

/// A thread's share of the copies of one operand: 16 bytes of every 48th row in each part of a stage.
template <class T>
struct Share {
    static constexpr int kStep = kThreads / 8;
    static_assert(kStep % 8 == 0);  // a thread's rows have one swizzle
    const T* from;
    std::int64_t step;  ///< elements to the next of its rows
    int rows, bytes;    ///< that are there from its first row on, and from its first column on

    __device__ Share(const T* operand, int ld, int rows_there, int cols)
        : from(operand + row() * std::int64_t{ld} + 8 * piece()),
          step(std::int64_t{kStep} * ld),
          rows(rows_there - row()),
          bytes(2 * (cols - 8 * piece())) {}
    /// Begins the copies of the next kDepth columns; what is not there becomes zero. Whether there are more.
    __device__ bool copy(std::uint32_t to) {
        to += row() * 128 + ((piece() ^ (row() & 7)) << 4);
#pragma unroll
        for (int part = 0; part < kDepth / 64; ++part) {
            const int size = max(0, min(16, bytes));
#pragma unroll
            for (int i = 0; i * kStep < kRows; ++i)
                if (row() + i * kStep < kRows)
                    hopper::copy16(to + part * kPartBytes + i * kStep * 128, from + i * step, i * kStep < rows ? size : 0);
            from += 64;
            bytes -= 2 * 64;
        }
        return bytes > -16 * piece();
    }

private:
    static __device__ int row() { return static_cast<int>(threadIdx.x) / 8; }
    static __device__ int piece() { return static_cast<int>(threadIdx.x) % 8; }
};

/// The inner products of a thread's rows with each other, as the products of a warpgroup leave them.
using Products = float[32];
struct Halves {
    std::uint32_t left, right;  ///< bytes from the beginning of a part to the rows of a warpgroup's two sides
};

/// The sum of squares from the gradient, by all threads of the block. `parts`: two of shared memory; `shared` as in block_sum.
template <class T>
__device__ float squares_of_gradient(const Unit<T>& unit, std::uint32_t parts, float* shared) {
    constexpr int kCopies = 256;  // threads that copy
    float sum = 0;
    for (int o = 0; o < unit.outputs; o += 64)
        for (int i = 0; i < unit.inputs; i += 64) {
            if (threadIdx.x < kCopies) {
                if (i == 0)
                    hopper::stage_columns<kCopies, kRows, 64>(unit.dz + o, unit.ld_dz, unit.rows, unit.outputs - o, parts);
                hopper::stage_columns<kCopies, kRows, 64>(unit.x + i, unit.ld_x, unit.rows, unit.inputs - i, parts + kPartBytes);
            }
            commit_copies();
            await_copies<0>();
            hopper::copies_visible();
            __syncthreads();
            if (threadIdx.x < 128) {
                const std::uint64_t dz = hopper::summed_rows(parts, kPartBytes),
                                    x = hopper::summed_rows(parts + kPartBytes, kPartBytes);
                Products dw = {};
                hopper::products_begin();
#pragma unroll
                for (int r = 0; r < kRows / 16; ++r)
                    tile::multiply_step<T, true, true>(dw, dz + r * (16 * 128 / 16), x + r * (16 * 128 / 16), 1);
                hopper::products_commit();
                hopper::products_wait<0>();
                hopper::hold(dw);
                for (const float value : dw) sum += value * value;
            }
            __syncthreads();  // the parts are read, the next may be written
        }
    return block_sum(sum, shared);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) gram_squares_kernel(const Unit<T>* units, int count) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ float shared[32];
    const std::uint32_t stages = (shared_address(memory_of_block) + 1023) / 1024 * 1024;
    const int group = static_cast<int>(threadIdx.x) / 128;
    const Halves halves{group == 2 ? kHalfBytes : 0, group == 0 ? 0 : kHalfBytes};
    // What is fetched next: of dz, then of x of unit `number`. No kernel writes the table.
    int number = blockIdx.x, filled = 0, read = 0;
    Unit<T> fetched = units[number], unit = fetched;
    bool of_x = false;
    Share<T> share(fetched.dz, fetched.ld_dz, fetched.rows, fetched.outputs);
    begin_kernel();
    const auto fetch = [&] {
        if (number < count) {
            const bool more = share.copy(stages + filled * kStageBytes);
            filled = next(filled);
            if (!more && of_x) {
                number += gridDim.x;
                if (number < count) fetched = units[number];
            }
            if (!more) {
                of_x = !of_x;
                share = of_x ? Share<T>(fetched.x, fetched.ld_x, fetched.rows, fetched.inputs)
                             : Share<T>(fetched.dz, fetched.ld_dz, fetched.rows, fetched.outputs);
            }
        }
        commit_copies();
    };
    // One step's products are under way while the next ones are issued, so that a stage is filled two steps after it was read.
    const auto multiply = [&](Products& sums, int steps) {
        for (; steps > 0; --steps) {
            await_copies<kStages - 3>();
            hopper::copies_visible();
            __syncthreads();  // all copies are there, and all products of the step before last are done
            hopper::products_begin();
#pragma unroll
            for (int i = 0; i < kDepth / 16; ++i) {
                const std::uint32_t from = stages + read * kStageBytes + i / 4 * kPartBytes + i % 4 * 32;
                tile::multiply_step<T, false, false>(sums, hopper::operand(from + halves.left),
                                                     hopper::operand(from + halves.right), 1);
            }
            hopper::products_commit();
            fetch();
            hopper::products_wait<1>();
            read = next(read);
        }
        hopper::products_wait<0>();
        hopper::hold(sums);
    };
    for (int s = 0; s < kStages - 2; ++s) fetch();
    for (int n = blockIdx.x; n < count; n += gridDim.x) {
        Products of_dz = {}, of_x = {};
        multiply(of_dz, unit.steps_dz());
        multiply(of_x, unit.steps_x());
        float sum = 0, terms = 0;
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            sum += of_dz[i] * of_x[i];
            terms += fabsf(of_dz[i] * of_x[i]);
        }
        sum = block_sum(group == 1 ? 2 * sum : sum, shared);
        terms = block_sum(group == 1 ? 2 * terms : terms, shared);
        if (sum < kCancelled * terms)  // the same in all threads
            sum = squares_of_gradient(unit, stages + kStages * kStageBytes, shared);
        if (threadIdx.x == 0) *unit.squares = sum < 0 ? 0 : sum;  // NaN stays
        if (n + static_cast<int>(gridDim.x) < count) unit = units[n + gridDim.x];
    }
}

template <class T>
KernelResult make_squares(Context& c, std::span<const Bound> wgrads) {
    using namespace linear_wgrad;
    std::vector<Unit<T>> units;
    std::vector<DeviceTable> held;
    for (const Bound& b : wgrads) {
        const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
        MILLRACE_LET(squares, leave_squares(c, ow, ow.g));
        MILLRACE_ASSERT(squares, "sums of squares that nothing uses");
        for (int k = 0; k < ow.k; ++k)
            for (int g = 0; g < ow.g; ++g)
                units.push_back({oz.at<const T>(k, g), ox.at<const T>(k, g), static_cast<float*>(squares) + k * ow.g + g,
                                 static_cast<std::int32_t>(oz.stride_row), static_cast<std::int32_t>(ox.stride_row), oz.rows,
                                 ow.rows, ow.cols});
        held.push_back(squares);
    }
    MILLRACE_LET(table, upload_table(c, units.data(), units.size() * sizeof(Unit<T>)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(gram_squares_kernel<T>)));
    const int count = static_cast<int>(units.size());
    const dim3 grid(static_cast<unsigned>(std::min(count, c.multiprocessors)));
    return in_order({make_launch(c, gram_squares_kernel<T>, grid, dim3(kThreads), kBytes, table, count)}, held);
}

}  // namespace

bool takes_gram_squares(const Context& c, const Bound& b) {
    using namespace linear_wgrad;
    const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
    return has_tile_products() && c.shared_limit >= kBytes && tensor::size_of(oz.dtype) == 2 && ox.dtype == oz.dtype &&
           aligned16(oz) && aligned16(ox) && oz.rows > 0 && oz.rows <= kRows &&
           std::int64_t{kRows} * (ow.rows + ow.cols) < std::int64_t{ow.rows} * ow.cols;
}

KernelResult make_gram_squares(Context& c, std::span<const Bound> wgrads) {
    const bool half = wgrads.front()[linear_wgrad::x].dtype == tensor::DType::f16;
    return half ? make_squares<f16>(c, wgrads) : make_squares<bf16>(c, wgrads);
}

}  // namespace millrace::ops::cuda
