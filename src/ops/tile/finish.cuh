#pragma once
// What follows a tile's product. Sums go through shared memory, 16 rows of 32 columns of a warp at a time, so that an epilogue
// works on runs of eight neighbouring columns and reads and writes 16 bytes at a time. A thread has the same run of two rows,
// eight rows apart (halves 0 and 1), of each such panel.
//
// Epilogue:
// - Args, what it needs of a problem.
// - kConstants: numbers of each column that all rows need, read by constant(args, k, g, which, col) before the product.
// - kColumnValues: numbers of each column that are summed over rows.
// - Loads: what a row's run needs from memory, asked for a panel ahead, that of the first panel before the product.
// - Work, made before the product from (args, k, g):
//   place(row, col): where the run of half 0 lies, a Place; next(place, row, col): of the panel to the right;
//   load(place, half, loads): only where row and run are whole and exist;
//   put(place, there, loads, constants, pitch, width, v): both runs, of which those exist that are `there`; the sums in v, of
//   which `width` (1 to 8) exist; constants of the run's columns are `pitch` apart;
//   done(unit, warp, warps): where it has one, after the last panel, by all lanes;
//   end(count, values): where kColumnValues > 0, the values of column own_column() of the panel over its `count` rows, by all
//   lanes. merge then joins those of all bands of 16 rows.
// - Where it has them, wants_rows(args) and put_row(args, k, g, row, sum): of the sums of the left operand's rows.

#include "ops/cuda/vector.cuh"
#include "ops/tile/hopper.cuh"
#include "ops/tile/plan.cuh"

namespace millrace::ops::cuda::tile {

template <class Epilogue>
constexpr bool sums_rows = requires(const typename Epilogue::Args& args) {
    Epilogue::wants_rows(args);
};

/// Named barriers: of each team, and for its turn to multiply.
constexpr int kTeamBarrier = 1, kTurnBarrier = 3;

template <class Shape>
__device__ inline int team_thread() {
    return static_cast<int>(threadIdx.x - 128) % Shape::kTeam;
}
/// Until all threads of the team have come.
template <class Shape>
__device__ inline void await_team() {
    const int team = Shape::kTeams > 1 ? static_cast<int>(threadIdx.x - 128) / Shape::kTeam : 0;
    hopper::await_turn<Shape::kTeam>(kTeamBarrier + team);
}

/// What a thread has of a tile's sums (hopper.cuh).
template <class Shape>
using Sums = float[Shape::kHigh][Shape::kWide / 64][32];

/// A panel's quads of four columns change places in odd rows, so that neither stores nor loads meet in a bank.
struct Panel {
    float *to, *low, *high;
    __device__ explicit Panel(float* memory) {
        const int lane = static_cast<int>(threadIdx.x & 31), line = lane / 4, odd = line % 2 * 4;
        memory += line * kPanelPitch;
        to = memory + (lane % 4 * 2 ^ odd);
        low = memory + lane % 4 * 8 + odd;
        high = memory + lane % 4 * 8 + (odd ^ 4);
    }
    /// 16 rows of 32 columns, the ones from `v` on.
    __device__ void put(const float* v) const {
#pragma unroll
        for (int j = 0; j < 4; ++j, v += 4) {
            *reinterpret_cast<float2*>(to + 8 * j) = make_float2(v[0], v[1]);
            *reinterpret_cast<float2*>(to + 8 * kPanelPitch + 8 * j) = make_float2(v[2], v[3]);
        }
    }
    /// Panel `number` of all that a warp has. Registers have no index, so that each panel has its own stores.
    template <int kCount>
    __device__ void put(const float* sums, int number) const {
        static_assert(kCount <= 8);
        switch (number) {
            case 0: return put(sums);
            case 1: return put(sums + 16);
            case 2: return put(sums + 2 % kCount * 16);
            case 3: return put(sums + 3 % kCount * 16);
            case 4: return put(sums + 4 % kCount * 16);
            case 5: return put(sums + 5 % kCount * 16);
            case 6: return put(sums + 6 % kCount * 16);
            default: return put(sums + 7 % kCount * 16);
        }
    }
    __device__ void get(float (&v)[2][8]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float4 a = *reinterpret_cast<const float4*>(low + half * 8 * kPanelPitch),
                         b = *reinterpret_cast<const float4*>(high + half * 8 * kPanelPitch);
            v[half][0] = a.x, v[half][1] = a.y, v[half][2] = a.z, v[half][3] = a.w;
            v[half][4] = b.x, v[half][5] = b.y, v[half][6] = b.z, v[half][7] = b.w;
        }
    }
};

/// The column of its run that a thread has after sum_over_lines.
__device__ inline int own_column() {
    const int lane = static_cast<int>(threadIdx.x & 31);
    return lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;
}
/// v[own_column()], v being the sums of all threads with the same columns.
__device__ inline float sum_over_lines(float (&v)[8]) {
#pragma unroll
    for (int n = 4; n > 0; n /= 2) {
        const bool upper = (threadIdx.x & (4 * n)) != 0;
#pragma unroll
        for (int i = 0; i < n; ++i) {
            const float other = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + n], 4 * n);
            v[i] = (upper ? v[i + n] : v[i]) + other;
        }
    }
    return v[0];
}

/// What a thread has of the sums of the left operand's rows: numbers 0 and 2, of rows as in Sums.
template <class Shape>
using RowSums = float[Shape::kHigh][4];

template <class Shape, class Epilogue, class Args>
__device__ __forceinline__ void finish_rows(const Problem<Args>& p, const Unit& u, const RowSums<Shape>& sums) {
    const int thread = team_thread<Shape>(), warp = thread / 32;
    if (thread % 4 > 0) return;
#pragma unroll
    for (int h = 0; h < Shape::kHigh; ++h) {
        const int row = u.row + kPanelRows * ((warp / 4 * Shape::kHigh + h) * 4 + warp % 4) + thread % 32 / 4;
        if (row < p.rows) Epilogue::put_row(p.args, u.k, u.g, row, sums[h][0]);
        if (row + 8 < p.rows) Epilogue::put_row(p.args, u.k, u.g, row + 8, sums[h][2]);
    }
}

template <class Shape, class Epilogue>
struct Finish {
    using Args = typename Epilogue::Args;
    static constexpr int kConstants = Epilogue::kConstants, kValues = Epilogue::kColumnValues;
    static constexpr int kAcross = Shape::kWide / kPanelColumns, kAll = Shape::kHigh * kAcross;
    static_assert(Shape::kWide <= Shape::kTeam && Shape::kRows <= Shape::kTeam);
    const Problem<Args>& p;
    const Unit& u;
    typename Epilogue::Work work;
    const int first;                 ///< band of 16 rows; the next one of this warp is four on
    typename Epilogue::Place place;  ///< of the panel whose loads were asked for
    typename Epilogue::Loads ahead[2];
    float constant[kConstants > 0 ? kConstants : 1];  ///< of one column, until all threads share them

    /// Before the product.
    __device__ __forceinline__ Finish(const Problem<Args>& problem, const Unit& unit)
        : p(problem),
          u(unit),
          work(p.args, u.k, u.g),
          first(team_thread<Shape>() / 128 * Shape::kHigh * 4 + team_thread<Shape>() / 32 % 4),
          place(work.place(row_of(0), column_of(0))) {
        load(0);
        const int thread = team_thread<Shape>();
        if constexpr (kConstants > 0) {
            const bool exists = thread < Shape::kWide && u.col + thread < p.cols;
#pragma unroll
            for (int i = 0; i < kConstants; ++i)
                constant[i] = exists ? Epilogue::constant(p.args, u.k, u.g, i, u.col + thread) : 0;
        }
    }

    /// `memory`: panels, two tiles' constants in turns, column values.
    __device__ __forceinline__ void end(const Sums<Shape>& sums, float* memory, int turn) {
        const int thread = team_thread<Shape>(), warp = thread / 32;
        float* constants = memory + Shape::kPanelFloats + turn * kConstants * Shape::kWide;
        float* values = memory + Shape::kPanelFloats + 2 * kConstants * Shape::kWide;
        const Panel panel(memory + warp * kPanelRows * kPanelPitch);
        if constexpr (kConstants > 0) {
            if (thread < Shape::kWide)
#pragma unroll
                for (int i = 0; i < kConstants; ++i) constants[i * Shape::kWide + thread] = constant[i];
            await_team<Shape>();
        }
#pragma unroll 1
        for (int q = 0; q < kAll; ++q) {
            __syncwarp();
            panel.template put<kAll>(&sums[0][0][0], q);
            __syncwarp();
            const auto here = place;
            const typename Epilogue::Loads now[2] = {ahead[0], ahead[1]};
            if (q + 1 < kAll) {
                if (q + 1 == kAcross)
                    place = work.place(row_of(q + 1), column_of(q + 1));
                else
                    work.next(place, row_of(q + 1), column_of(q + 1));
                load(q + 1);
            }
            const int width = min(8, p.cols - column_of(q)), row = row_of(q);
            const bool there[2] = {width > 0 && row<p.rows, width> 0 && row + 8 < p.rows};
            float v[2][8];
            panel.get(v);
            work.put(here, there, now, constants + column_of(q) - u.col, Shape::kWide, width, v);
            if constexpr (kValues > 0) {
                const int band = first + q / kAcross * 4;
                float own[kValues];
                work.end(min(kPanelRows, p.rows - u.row - kPanelRows * band), own);
#pragma unroll
                for (int s = 0; s < kValues; ++s)
                    values[(band * kValues + s) * Shape::kWide + column_of(q) - u.col + own_column()] = own[s];
            }
        }
        if constexpr (requires { work.done(u, warp, warp); }) work.done(u, warp, Shape::kWarps);
        if constexpr (kValues > 0) {
            await_team<Shape>();
            const int bands = min(Shape::kBands, (p.rows - u.row + kPanelRows - 1) / kPanelRows);
            if (thread < min(Shape::kWide, p.cols - u.col))
                Epilogue::merge(p, u, u.col + thread, bands, values + thread, Shape::kWide);
            await_team<Shape>();
        }
    }

private:
    __device__ int row_of(int q) const { return u.row + kPanelRows * (first + q / kAcross * 4) + team_thread<Shape>() % 32 / 4; }
    __device__ int column_of(int q) const { return u.col + kPanelColumns * (q % kAcross) + team_thread<Shape>() % 4 * 8; }
    /// What panel q reads, at `place`.
    __device__ __forceinline__ void load(int q) {
        const bool whole = column_of(q) + 8 <= p.cols;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (whole && row_of(q) + 8 * half < p.rows) work.load(place, half, ahead[half]);
    }
};

}  // namespace millrace::ops::cuda::tile
