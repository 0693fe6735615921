#pragma once
// What follows a tile's product. Sums go through shared memory, 16 rows of 32 columns of a warp at a time, so that an epilogue
// works on runs of eight neighbouring columns and reads and writes 16 bytes at a time. A thread has the same run of two rows,
// eight rows apart (halves 0 and 1), of each such panel.
//
// Epilogue:
// - Args, what it needs of a problem.
// - kConstants: numbers of each column that all rows need, read by constant(args, k, g, which, col) before the product ends.
// - kColumnValues: numbers of each column that are summed over rows.
// - Loads: what a row's run needs from memory, asked for a panel ahead.
// - Work, made once per tile from (args, k, g, row, col) of the thread's first run:
//   load(loads, half, panels): of the run so many panels on; only where row and run are whole and exist;
//   put(half, loads, constants, pitch, width, v): one run, the sums in v, of which `width` (1 to 8) exist; constants of the run's
//   columns are `pitch` apart; next(): to the next panel; where it has one, done(unit, warp, warps): after the last, by all
//   lanes; where kColumnValues > 0, end(count, values): of the run's columns over the warp's `count` rows, by all lanes. merge
//   then joins those of the warps.
// - Where it has them, wants_rows(args) and put_row(args, k, g, row, sum): of the sums of the left operand's rows.

#include "ops/cuda/vector.cuh"
#include "ops/cuda/warpgroup_product.cuh"
#include "ops/tile/problem.cuh"

namespace millrace::ops::cuda::tile {

template <class Epilogue>
constexpr bool sums_rows = requires(const typename Epilogue::Args& args) {
    Epilogue::wants_rows(args);
};

template <class Epilogue, class Args>
__device__ __forceinline__ void finish_rows(const Problem<Args>& p, const Unit& u, const float (&row_sums)[4]) {
    const int thread = static_cast<int>(threadIdx.x) - 128, row = u.row + thread / 32 * kPanelRows + thread % 32 / 4;
    if (thread % 4 > 0) return;
    if (row < p.rows) Epilogue::put_row(p.args, u.k, u.g, row, row_sums[0]);
    if (row + 8 < p.rows) Epilogue::put_row(p.args, u.k, u.g, row + 8, row_sums[2]);
}

template <int kQuarters>
__device__ inline void stage_panel(const float (&sums)[kQuarters][32], int panel, float* to) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    float* at = to + lane / 4 * kPanelPitch + lane % 4 * 2;
#pragma unroll
    for (int p = 0; p < 2 * kQuarters; ++p) {
        if (p != panel) continue;  // registers have no index, so that each panel has its own stores
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float* v = sums[p / 2] + 4 * (4 * (p % 2) + j);
            *reinterpret_cast<float2*>(at + 8 * j) = make_float2(v[0], v[1]);
            *reinterpret_cast<float2*>(at + 8 * kPanelPitch + 8 * j) = make_float2(v[2], v[3]);
        }
    }
}

/// Until all threads that multiply have come.
template <class Shape>
__device__ inline void await_products() {
    hopper::await_turn<128 * Shape::kGroups>(3);
}

/// The constants of a tile's columns: a thread's own, until put() shares them.
template <class Shape, class Epilogue>
struct Constants {
    static constexpr int kCount = Epilogue::kConstants;
    static_assert(Shape::kWide <= 128 * Shape::kGroups);
    float own[kCount > 0 ? kCount : 1];

    template <class Args>
    __device__ __forceinline__ void load(const Problem<Args>& p, const Unit& u) {
        if constexpr (kCount > 0) {
            const int column = static_cast<int>(threadIdx.x) - 128, col = u.col + column;
#pragma unroll
            for (int i = 0; i < kCount; ++i)
                own[i] = column < Shape::kWide && col < p.cols ? Epilogue::constant(p.args, u.k, u.g, i, col) : 0;
        }
    }
    __device__ void put(float* to) const {
        const int column = static_cast<int>(threadIdx.x) - 128;
        if (column >= Shape::kWide) return;
#pragma unroll
        for (int i = 0; i < kCount; ++i) to[i * Shape::kWide + column] = own[i];
    }
};

/// Numbers per column of each warp, [kWarps][kColumnValues][kWide], joined by the threads that multiply.
template <class Shape, class Epilogue, class Args>
__device__ __forceinline__ void merge_columns(const Problem<Args>& p, const Unit& u, const float* values) {
    await_products<Shape>();
    const int warps = min(Shape::kWarps, (p.rows - u.row + kPanelRows - 1) / kPanelRows);
    for (int c = static_cast<int>(threadIdx.x) - 128; c < min(Shape::kWide, p.cols - u.col); c += 128 * Shape::kGroups)
        Epilogue::merge(p, u, u.col + c, warps, values + c, Shape::kWide);
    await_products<Shape>();
}

/// `memory`: panels, two tiles' constants in turns, column values.
template <class Shape, class Epilogue, class Args>
__device__ __forceinline__ void finish_tile(const Problem<Args>& p, const Unit& u, const float (&sums)[Shape::kWide / 64][32],
                                            const Constants<Shape, Epilogue>& early, float* memory, int turn) {
    constexpr int kValues = Epilogue::kColumnValues, kPanels = Shape::kWide / kPanelColumns;
    const int warp = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x & 31);
    const int line = lane / 4, run = lane % 4 * 8, row0 = u.row + kPanelRows * warp;
    float* panel = memory + warp * kPanelRows * kPanelPitch;
    float* constants = memory + Shape::kPanelFloats + turn * Epilogue::kConstants * Shape::kWide;
    float* all_values = memory + Shape::kPanelFloats + 2 * Epilogue::kConstants * Shape::kWide;
    typename Epilogue::Work work(p.args, u.k, u.g, row0 + line, u.col + run);
    typename Epilogue::Loads ahead[2];
    const auto load = [&](int q, int panels) {
        const bool whole = q < kPanels && u.col + kPanelColumns * q + run + 8 <= p.cols;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (whole && row0 + line + 8 * half < p.rows) work.load(ahead[half], half, panels);
    };
    load(0, 0);
    if constexpr (Epilogue::kConstants > 0) {
        early.put(constants);
        await_products<Shape>();
    }
#pragma unroll 1
    for (int q = 0; q < kPanels; ++q) {
        const int width = min(8, p.cols - u.col - kPanelColumns * q - run);
        __syncwarp();
        stage_panel(sums, q, panel);
        __syncwarp();
        const typename Epilogue::Loads now[2] = {ahead[0], ahead[1]};
        load(q + 1, 1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float v[8];
            load_run<8>(panel + (line + 8 * half) * kPanelPitch + run, v);
            if (row0 + line + 8 * half < p.rows && width > 0)
                work.put(half, now[half], constants + kPanelColumns * q + run, Shape::kWide, width, v);
        }
        if constexpr (kValues > 0) {
            float values[kValues][8];
            work.end(min(kPanelRows, p.rows - row0), values);
            float* to = all_values + warp * kValues * Shape::kWide + kPanelColumns * q + run;
            if (lane < 4)
#pragma unroll
                for (int s = 0; s < kValues; ++s) store_run<8>(to + s * Shape::kWide, values[s]);
        }
        work.next();
    }
    if constexpr (requires { work.done(u, warp, warp); }) work.done(u, warp, Shape::kWarps);
    if constexpr (kValues > 0) merge_columns<Shape, Epilogue>(p, u, all_values);
}

/// The sum over a warp's rows, of which each thread has its share: over the lanes with the same columns.
__device__ inline void sum_over_lines(float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int d = 4; d < 32; d *= 2) v[i] += __shfl_xor_sync(0xffffffffu, v[i], d);
}

}  // namespace millrace::ops::cuda::tile
