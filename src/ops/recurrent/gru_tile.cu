// The recurrent layer in bf16 on tensor cores: products and gates in one kernel.

#include "ops/cuda/tile_product.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/weight_copies.h"
#include "ops/recurrent/gates.cuh"
#include "ops/recurrent/gru.h"
#include "ops/tile/hopper.cuh"

// Before Hopper the kernel of tile_product.cuh is empty, so that nothing uses what follows.
#ifndef MILLRACE_HOPPER
#pragma nv_diag_suppress 177
#endif

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

/// Off by at most 2^-11 of the value: a quarter of what rounding to bf16 costs.
__device__ inline float quick_tanh(float v) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}
__device__ inline float quick_sigmoid(float v) { return fmaf(quick_tanh(0.5f * v), 0.5f, 0.5f); }

/// Sums 0 and 1 take r and z from both operands; 2 takes what n gets from x, which then moves to 3 to make room for what it gets
/// from h. (Four sums of which each operand uses three would be simpler, but a product's registers must lie side by side.)
struct GruForward {
    using Plan = TilePlan<3, 4, 5>;
    struct Args {
        RowMask rows_taken;
        Mat<const bf16> h;
        Mat<bf16> gates, out;
        const float *b_ih, *b_hh;
        int width;
    };
    /// Whether the two rows take part, and their states.
    struct Early {
        bool live[2];
        uint4 h[2][2];
    };

    static __device__ __forceinline__ void multiply(float (&sums)[4][32], std::uint64_t left, std::uint64_t right) {
        hopper::multiply(sums[0], sums[1], sums[2], left, right);
    }
    static constexpr bool kAfterFirst = true;
    static __device__ __forceinline__ void after_first(float (&sums)[4][32]) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {  // moves that the compiler cannot take for a change of names
            asm volatile("mov.b32 %0, %1;" : "=f"(sums[3][i]) : "f"(sums[2][i]));
            asm volatile("mov.b32 %0, 0;" : "+f"(sums[2][i]));
        }
    }

    /// Biases of r, of z, of n from x and of n from h.
    static std::size_t shared_floats(const Args& a) { return 4 * static_cast<std::size_t>(a.width); }
    static __device__ void prepare(const Args& a, float* bias) {
        for (int i = static_cast<int>(threadIdx.x); i < 4 * a.width; i += kTileThreads)
            bias[i] = i < 2 * a.width ? a.b_ih[i] + a.b_hh[i] : i < 3 * a.width ? a.b_ih[i] : a.b_hh[i - a.width];
    }
    static __device__ __forceinline__ void look_ahead(const Args&, int, int) {}

    static __device__ __forceinline__ Early begin(const Args& a, const int (&row)[2], int tile) {
        Early early{};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row[half] < 0) continue;
            early.live[half] = a.rows_taken.takes_part(0, row[half]);
#pragma unroll
            for (int run = 0; run < 2; ++run)
                early.h[half][run] =
                    *reinterpret_cast<const uint4*>(a.h.row(0, 0, row[half]) + tile * kTileGroup + column_run(run));
        }
        return early;
    }

    static __device__ __forceinline__ void finish(const Args& a, const float* bias, const int (&row)[2], int tile,
                                                  const Early& early, const float (&sums)[4][32]) {
#pragma unroll
        for (int run = 0; run < 2; ++run) {
            const int column = tile * kTileGroup + column_run(run);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (row[half] < 0) continue;
                bf16* out = a.out.row(0, 0, row[half]) + column;
                if (!early.live[half]) {
                    *reinterpret_cast<uint4*>(out) = early.h[half][run];
                    continue;
                }
                float r[8], z[8], n[8], hn[8], next[8], b[8];
                run_of(sums[0], half, run, r);
                run_of(sums[1], half, run, z);
                run_of(sums[3], half, run, n);
                run_of(sums[2], half, run, hn);
                load_run<8>(bias + column, b);
#pragma unroll
                for (int i = 0; i < 8; ++i) r[i] = quick_sigmoid(r[i] + b[i]);
                load_run<8>(bias + a.width + column, b);
#pragma unroll
                for (int i = 0; i < 8; ++i) z[i] = quick_sigmoid(z[i] + b[i]);
                load_run<8>(bias + 3 * a.width + column, b);
#pragma unroll
                for (int i = 0; i < 8; ++i) hn[i] += b[i];
                load_run<8>(bias + 2 * a.width + column, b);
                float old[8];
                spread<bf16>(early.h[half][run], old);
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    n[i] = quick_tanh(n[i] + b[i] + r[i] * hn[i]);
                    next[i] = n[i] + z[i] * (old[i] - n[i]);
                }
                store_run<8>(out, next);
                if (a.gates) store_gates<8>(a.gates.row(0, 0, row[half]) + column, a.width, r, z, n, hn);
            }
        }
    }
};

/// The products that reach a state's gradient, then the gates' gradients. kGroups * 64 columns of the state per tile.
template <int kGroups>
struct GruBackward {
    using Plan = TilePlan<kGroups, kGroups, kGroups == 4 ? 4 : 6>;
    static constexpr int kColumns = kGroups * kTileGroup;
    struct Args {
        RowMask rows_taken;
        Mat<float> dh;
        Mat<const bf16> gates, h;
        Mat<bf16> dgates;
        int width;
        bool begins;
    };
    struct Early {
        bool live[2];
    };

    static __device__ __forceinline__ void multiply(float (&sums)[kGroups][32], std::uint64_t left, std::uint64_t right) {
        tile::multiply_step<bf16, false, false>(sums, left, right, 1);
    }
    static constexpr bool kAfterFirst = false;
    static __device__ __forceinline__ void after_first(float (&)[kGroups][32]) {}
    static std::size_t shared_floats(const Args&) { return 0; }
    static __device__ __forceinline__ void prepare(const Args&, float*) {}
    static __device__ __forceinline__ void look_ahead(const Args& a, int row, int tile) {
        const int column = tile * kColumns;
        const bf16* gates = a.gates.row(0, 0, row) + column;
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) hopper::fetch_ahead(gates + gate * a.width, kColumns * sizeof(bf16));
        hopper::fetch_ahead(a.h.row(0, 0, row) + column, kColumns * sizeof(bf16));
        if (!a.begins) hopper::fetch_ahead(a.dh.row(0, 0, row) + column, kColumns * sizeof(float));
    }
    static __device__ __forceinline__ Early begin(const Args& a, const int (&row)[2], int) {
        Early early{};
#pragma unroll
        for (int half = 0; half < 2; ++half) early.live[half] = row[half] >= 0 && a.rows_taken.takes_part(0, row[half]);
        return early;
    }

    static __device__ __forceinline__ void finish(const Args& a, const float*, const int (&row)[2], int tile, const Early& early,
                                                  const float (&sums)[kGroups][32]) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
#pragma unroll
            for (int run = 0; run < 2; ++run) {
                const int column = tile * kColumns + g * kTileGroup + column_run(run);
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    if (row[half] >= 0) eight(a, row[half], column, early.live[half], half, run, sums[g]);
            }
    }

    static __device__ __forceinline__ void eight(const Args& a, int row, int column, bool live, int half, int run,
                                                 const float (&sums)[32]) {
        float* target = a.dh.row(0, 0, row) + column;
        float d[8];
        run_of(sums, half, run, d);
        if (!a.begins) {
            float there[8];
            load_run<8>(target, there);
#pragma unroll
            for (int i = 0; i < 8; ++i) d[i] += there[i];
        }
        gates_back<8>(live, d, a.gates.row(0, 0, row) + column, a.h.row(0, 0, row) + column, a.width,
                      a.dgates.row(0, 0, row) + column, target);
    }
};

bool tiled(const Operand& o) { return o.dtype == DType::bf16 && o.k == 1 && whole_runs(o); }
int in_eights(int n) { return (n + 7) / 8 * 8; }

}  // namespace

bool tiles_gru_forward(const Context& c, const Bound& b) {
    namespace at = gru_forward;
    const Operand &x = b[at::x], &h = b[at::h];
    return has_tile_products() && h.cols % kTileGroup == 0 && h.rows > 0 && tiled(x) && tiled(h) && tiled(b[at::out]) &&
           whole_runs(b[at::gates]) && x.cols >= in_eights(b[at::w_ih].cols) &&
           GruForward::Plan::kShared + 16 * static_cast<std::size_t>(h.cols) <= c.shared_limit;
}

KernelResult make_tiled_gru_forward(Context& c, const Bound& b) {
    namespace at = gru_forward;
    const Operand &x = b[at::x], &h = b[at::h];
    PackShape shape;
    shape.groups = GruForward::Plan::kGroups;
    shape.tiles = h.cols / kTileGroup;
    shape.group_stride = h.cols;
    shape.tile_stride = kTileGroup;
    Kernels steps;
    MILLRACE_LET(packed, pack_weights(c, {b[at::w_ih], b[at::w_hh]}, shape, steps));
    TileArgs a;
    a.segments[0] = {static_cast<const bf16*>(x.data), x.stride_row, in_eights(b[at::w_ih].cols), packed.first[0]};
    a.segments[1] = {static_cast<const bf16*>(h.data), h.stride_row, h.cols, packed.first[1]};
    a.count = 2;
    a.packed = static_cast<const bf16*>(packed.data);
    a.rows = h.rows;
    a.tiles = shape.tiles;
    const auto bias = [&](int slot) { return static_cast<const float*>(b[slot].data); };
    const GruForward::Args work{
        row_mask(b[at::mask], b[at::flag]), h, b[at::gates], b[at::out], bias(at::b_ih), bias(at::b_hh), h.cols};
    MILLRACE_LET(kernel, make_tile_kernel<GruForward>(c, a, work));
    steps.push_back(std::move(kernel));
    return in_order(std::move(steps));
}

namespace {

template <int kGroups>
KernelResult make_backward(Context& c, const Bound& b) {
    namespace at = gru_backward;
    using Work = GruBackward<kGroups>;
    const Operand& h = b[at::h];
    PackShape shape;
    shape.groups = kGroups;
    shape.tiles = h.cols / Work::kColumns;
    shape.group_stride = kTileGroup;
    shape.tile_stride = Work::kColumns;
    shape.transposed = true;
    TileArgs a;
    std::vector<Operand> weights;
    for (int i = at::a0; i <= at::a3 && b[i].present(); i += 2) weights.push_back(b[i + 1]);
    Kernels steps;
    MILLRACE_LET(packed, pack_weights(c, weights, shape, steps));
    for (int i = at::a0; i <= at::a3 && b[i].present(); i += 2) {
        a.segments[a.count] = {static_cast<const bf16*>(b[i].data), b[i].stride_row, b[i].cols,
                               packed.first[static_cast<std::size_t>(a.count)]};
        ++a.count;
    }
    a.packed = static_cast<const bf16*>(packed.data);
    a.rows = h.rows;
    a.tiles = shape.tiles;
    const typename Work::Args work{row_mask(b[at::mask], b[at::flag]),  b[at::dh], b[at::gates], h, b[at::dgates], h.cols,
                                   b.params<GruBackwardParams>().begins};
    MILLRACE_LET(kernel, make_tile_kernel<Work>(c, a, work));
    steps.push_back(std::move(kernel));
    return in_order(std::move(steps));
}

/// Whether tiles of `groups` groups of columns keep every multiprocessor busy.
bool fills(const Context& c, const Operand& h, int groups) {
    const int row_tiles = (h.rows + kTileRows - 1) / kTileRows;
    return h.cols % (groups * kTileGroup) == 0 && row_tiles * (h.cols / (groups * kTileGroup)) >= c.multiprocessors;
}

}  // namespace

/// With few rows the library's products and one pass are faster (docs/performance). Pinned runs have no library.
bool tiles_gru_backward(const Context& c, const Bound& b) {
    namespace at = gru_backward;
    const Operand& h = b[at::h];
    if (!has_tile_products() || h.cols % kTileGroup != 0 || h.rows == 0 || !b[at::a0].present()) return false;
    if (!c.deterministic && !fills(c, h, 4)) return false;
    for (int i = at::a0; i <= at::a3 && b[i].present(); i += 2)
        if (!tiled(b[i]) || b[i].cols % 8 != 0) return false;
    return tiled(h) && tiled(b[at::gates]) && tiled(b[at::dgates]) && whole_runs(b[at::dh]);
}

KernelResult make_tiled_gru_backward(Context& c, const Bound& b) {
    const Operand& h = b[gru_backward::h];
    // Wide tiles read the least; narrow ones keep every multiprocessor busy when there are few rows.
    if (fills(c, h, 4)) return make_backward<4>(c, b);
    if (fills(c, h, 2)) return make_backward<2>(c, b);
    return make_backward<1>(c, b);
}

}  // namespace millrace::ops::cuda
