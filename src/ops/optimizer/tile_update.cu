// Weight gradients that are never stored: each block computes tiles of dw = dz^T x, whole rows of up to 800 columns, and applies
// them to parameters, moments and 16-bit copy. Memory decides, so that nothing waits for it: one half of the threads updates with
// a tile while the other half computes the next one. A tile's parameters are neighbours in memory, and a warp takes 512 bytes of
// them that begin at a multiple of 512: with 448 bytes of a row instead, 931 MB took 285 us on an H200, with 512 236. Products
// are those of two warpgroups (compute capability 9.0a), 64 columns each; sums stay in registers until the gradient before them
// has been read. Gradients that were stored come in place of the products.

#include "ops/cuda/async_copy.cuh"
#include "ops/optimizer/update.cuh"
#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kProductThreads = 256, kUpdateThreads = 256, kThreads = kProductThreads + kUpdateThreads;
/// Of a thread, 65,536 in all: sums of a whole tile, or parameters and moments of a quad.
constexpr int kProductRegisters = 168, kUpdateRegisters = 88;
constexpr int kGradientReady = 1, kGradientRead = 2, kProductStep = 3;  ///< barriers; the last one of product threads alone
constexpr int kPiece = 128, kUpdateWarps = kUpdateThreads / 32;         ///< elements of a warp's turn
constexpr int kAhead = 4;                                               ///< turns whose parameters and moments are under way
constexpr int kStepColumns = 128, kSteps = (kUpdateInputs + kStepColumns - 1) / kStepColumns;
constexpr int kStepSums = kUpdateOutputs * kStepColumns / kProductThreads;
/// In shared memory: two steps of x, in parts of 64 columns as hopper.cuh says, one for each warpgroup; dz; the gradient of a
/// tile from the last multiple of 512 bytes on; each warp's ring of parameters and moments.
constexpr std::uint32_t kPartBytes = kUpdateDepth * 128, kStepBytes = kStepColumns / 64 * kPartBytes;
constexpr std::uint32_t kDz = 2 * kStepBytes, kDzBytes = kUpdateDepth * kUpdateOutputs * 2;
constexpr std::uint32_t kGradient = kDz + kDzBytes, kGradientBytes = (kUpdateElements + kPiece) * 4;
constexpr std::uint32_t kTurnBytes = 3 * kPiece * 4, kRing = kGradient + kGradientBytes;
constexpr std::size_t kBytes = 1024 + kRing + kUpdateWarps * kAhead * kTurnBytes;
static_assert(kUpdateOutputs == 32);               // rows of dz have 64 bytes in shared memory
constexpr int kStoredRound = 4 * kProductThreads;  ///< elements of a stored gradient that its threads copy at once
static_assert(kStepSums == 16 && kUpdateStored <= kSteps * 4 * kStoredRound && kUpdateStored <= kUpdateElements);

/// Begins the copies of what step `step` of a tile multiplies, and of dz for the first one.
__device__ void stage_step(const UpdateTile& t, int step, std::uint32_t operands) {
    const int column = step * kStepColumns;
    hopper::stage_columns<kProductThreads, kUpdateDepth, kStepColumns>(t.x + column, t.ld_x, t.rows, t.inputs - column,
                                                                       operands + (step & 1) * kStepBytes);
    if (step > 0) return;
    const int row = static_cast<int>(threadIdx.x) / 4, piece = static_cast<int>(threadIdx.x) % 4;
    const int bytes = max(0, min(16, 2 * (t.outputs - 8 * piece)));
#pragma unroll
    for (int r = row; r < kUpdateDepth; r += kProductThreads / 4) {
        const bool there = r < t.rows && bytes > 0;
        hopper::copy16(operands + kDz + 64 * r + ((piece ^ (r >> 1 & 3)) << 4),
                       there ? t.dz + std::int64_t{r} * t.ld_dz + 8 * piece : t.dz, there ? bytes : 0);
    }
}
/// Those of the first two steps.
__device__ void stage_tile(const UpdateTile& t, std::uint32_t operands) {
    if (t.stored != nullptr) return;
    stage_step(t, 0, operands);
    if (t.inputs > kStepColumns) stage_step(t, 1, operands);
    commit_copies();
}

/// What all elements of a tile share.
struct Step {
    Rates rates;
    bool changes;
};
/// Member k with the step's norm, by a warp.
__device__ MemberState state_of(const UpdateArgs& a, int k) {
    MemberState m = a.state[k];
    finish_norm_in_warp(m, a.slices.row(k, 0, 0));
    return m;
}
__device__ Step step_of(const UpdateArgs& a, const UpdateTile& t) {
    const MemberState m = state_of(a, t.member);
    const GroupState group = a.groups.row(t.member)[t.group];
    return {Rates(m, group), m.nonfinite == 0 && group.updated()};
}

/// Where a tile lies: its elements [first, end) from `start` on, a multiple of kPiece in the arenas of all members. Of a tile
/// that has a part of the columns, each row begins `gap` elements behind the end of the one before.
struct Extent {
    std::uint32_t start = 0;
    int first = 0, end = 0, gap = 0;
    float rows_per_element = 0;

    Extent() = default;
    __device__ explicit Extent(const UpdateTile& t)
        : start(t.at / kPiece * kPiece), first(static_cast<int>(t.at - start)), end(first + t.count), gap(t.gap) {
        rows_per_element = 1.0f / static_cast<float>(t.inputs);
    }
    /// Of each warp. As many as are under way, so that prefetched turns are those of this tile and the next one.
    __device__ int turns() const { return max(kAhead, (end + kUpdateWarps * kPiece - 1) / (kUpdateWarps * kPiece)); }
    __device__ bool has(int element) const { return element >= first && element < end; }
    __device__ std::uint32_t parameter(int element) const {
        if (gap == 0) return start + element;
        const float row = (static_cast<float>(element - first) + 0.5f) * rows_per_element;
        return start + element + static_cast<int>(row) * gap;
    }
};

struct State {
    float4 p, m, v;
};

template <OptimizerKind kKind>
__device__ void update_quad(const Rates& rates, State& s, const float4& g) {
    s.p.x = update(rates, kKind, s.p.x, g.x, s.m.x, s.v.x);
    s.p.y = update(rates, kKind, s.p.y, g.y, s.m.y, s.v.y);
    s.p.z = update(rates, kKind, s.p.z, g.z, s.m.z, s.v.z);
    s.p.w = update(rates, kKind, s.p.w, g.w, s.m.w, s.v.w);
}

template <OptimizerKind kKind, class T>
__device__ void write(const UpdateArgs& a, std::uint32_t at, const State& s) {
    *reinterpret_cast<float4*>(a.params.data + at) = s.p;
    if (kKind != OptimizerKind::sgd || a.m) *reinterpret_cast<float4*>(a.m.data + at) = s.m;
    if (kKind != OptimizerKind::sgd) *reinterpret_cast<float4*>(a.v.data + at) = s.v;
    constexpr bool kHalf = std::is_same_v<T, f16>;
    *reinterpret_cast<uint2*>(a.copy16.data + at) = make_uint2(pair_bits(s.p.x, s.p.y, kHalf), pair_bits(s.p.z, s.p.w, kHalf));
}

/// Where element `element` of the gradient lies in shared memory: quads stay together, and columns that are 2, 4 or 6 rows of
/// about 800 elements apart are in different banks.
__device__ int gradient_index(int element) { return element ^ (element >> 9 & 3) << 3; }

/// A tile's products: thread t has in step i columns 128 i + 16 (t / 32) + t % 32 / 4 (+ 8) of rows 8 j + 2 (t % 4) (+ 1). Rows
/// that the tile has not got are written behind its end.
__device__ void put_products(const UpdateTile& t, int first, const float (&sums)[kSteps][kStepSums], float* gradient) {
    const int lane = static_cast<int>(threadIdx.x) % 32, column = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    const int at = first + 2 * (lane & 3) * t.inputs + column;
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
        for (int v = 0; v < kStepSums; ++v) {
            const int down = v / 4 * 8 + v % 2, right = i * kStepColumns + v % 4 / 2 * 8;
            if (column + right < t.inputs) gradient[gradient_index(at + down * t.inputs + right)] = sums[i][v];
        }
}
__device__ int stored_element(int round) { return round * kStoredRound + 4 * static_cast<int>(threadIdx.x); }

/// One half of the threads: computes the gradients of a block's tiles.
template <class T>
__device__ void compute_gradients(const UpdateArgs& a, const UpdateTile* tiles, int count, std::uint32_t operands,
                                  float* gradient, Step* of_tile) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int stride = static_cast<int>(gridDim.x);
    // No kernel writes tables, and what tiles read but the norm is older than the kernel before this one.
    UpdateTile tile = tiles[blockIdx.x];
    stage_tile(tile, operands);
    bool first_tile = true;
    for (int n = blockIdx.x, parity = 0; n < count; n += stride, parity ^= 1) {
        const UpdateTile behind = tiles[min(n + stride, count - 1)];
        alignas(16) float sums[kSteps][kStepSums] = {};
        if (tile.stored != nullptr) {
#pragma unroll
            for (int i = 0; i < kUpdateStored / kStoredRound; ++i)
                if (stored_element(i) < tile.count)
                    *reinterpret_cast<float4*>(sums[i / 4] + i % 4 * 4) =
                        *reinterpret_cast<const float4*>(tile.stored + stored_element(i));
        } else {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                if (step * kStepColumns >= tile.inputs) break;
                if (step == 0)
                    await_copies<0>();
                else
                    await_copies<1>();
                hopper::copies_visible();
                hopper::await_turn<kProductThreads>(kProductStep);
                const std::uint64_t x = hopper::summed_rows(operands + (step & 1) * kStepBytes + warp / 4 * kPartBytes,
                                                            kPartBytes),
                                    dz = hopper::summed_short_rows(operands + kDz);
                hopper::products_begin();
#pragma unroll
                for (int i = 0; i < kUpdateDepth / 16; ++i)
                    tile::multiply_step<T, true, true>(sums[step], x + i * (16 * 128 / 16), dz + i * (16 * 64 / 16), 1);
                hopper::products_commit();
                hopper::products_wait<0>();
                hopper::hold(sums[step]);
                hopper::await_turn<kProductThreads>(kProductStep);  // the operands have been read
                if ((step + 2) * kStepColumns < tile.inputs) stage_step(tile, step + 2, operands);
                commit_copies();
            }
        }
        if (n + stride < count) stage_tile(behind, operands);
        if (first_tile) {
            begin_kernel();
            for (int k = blockIdx.x; k < a.members && warp == 0; k += stride) {
                const MemberState m = state_of(a, k);
                if (lane > 0) continue;
                a.state[k].grad_norm = m.grad_norm;  // other blocks have their own copy of these two
                a.state[k].clip_scale = m.clip_scale;
                report_member(a, k, m, *a.counter + 1);
            }
        }
        if (warp == 0) {
            const Step step = step_of(a, tile);
            if (lane == 0) of_tile[parity] = step;
        }
        if (!first_tile) hopper::await_turn<kThreads>(kGradientRead);
        first_tile = false;
        const int first = static_cast<int>(tile.at % kPiece);
        if (tile.stored == nullptr) {
            put_products(tile, first, sums, gradient);
        } else {
#pragma unroll
            for (int i = 0; i < kUpdateStored / kStoredRound; ++i)
                if (stored_element(i) < tile.count)
                    *reinterpret_cast<float4*>(gradient + gradient_index(first + stored_element(i))) =
                        *reinterpret_cast<const float4*>(sums[i / 4] + i % 4 * 4);
        }
        hopper::give_turn<kThreads>(kGradientReady);
        tile = behind;
    }
}

/// The other half: updates with them.
template <OptimizerKind kKind, class T>
__device__ void apply_gradients(const UpdateArgs& a, const UpdateTile* tiles, int count, unsigned char* memory,
                                const float* gradient, const Step* of_tile) {
    const int thread = static_cast<int>(threadIdx.x) - kProductThreads, warp = thread / 32, lane = thread % 32;
    unsigned char* ring = memory + kRing + warp * (kAhead * kTurnBytes) + 16 * lane;
    const auto element_of = [&](int turn) { return (turn * kUpdateWarps + warp) * kPiece + 4 * lane; };
    // The lane that prefetches is the one that reads, so that it need not wait for others.
    const auto prefetch = [&](const Extent& of, int turn, int place) {
        if (const int element = element_of(turn); of.has(element)) {
            const std::uint32_t at = of.parameter(element), to = shared_address(ring + place * kTurnBytes);
            hopper::copy16(to, a.params.data + at, 16);
            if (kKind != OptimizerKind::sgd || a.m) hopper::copy16(to + kPiece * 4, a.m.data + at, 16);
            if (kKind != OptimizerKind::sgd) hopper::copy16(to + 2 * kPiece * 4, a.v.data + at, 16);
        }
        commit_copies();
    };
    const auto read = [&](int place) {
        const auto* from = reinterpret_cast<const float4*>(ring + place * kTurnBytes);
        State s{};
        s.p = from[0];
        if (kKind != OptimizerKind::sgd || a.m) s.m = from[kPiece / 4];
        if (kKind != OptimizerKind::sgd) s.v = from[2 * kPiece / 4];
        return s;
    };
    const int stride = static_cast<int>(gridDim.x);
    Extent now(tiles[blockIdx.x]);
    for (int i = 0; i < kAhead; ++i) prefetch(now, i, i);
    begin_kernel();
    for (int n = blockIdx.x, parity = 0, place = 0; n < count; n += stride, parity ^= 1) {
        const bool more = n + stride < count;
        const Extent next = more ? Extent(tiles[n + stride]) : Extent();
        hopper::await_turn<kThreads>(kGradientReady);
        const Rates rates = of_tile[parity].rates;
        const bool changes = of_tile[parity].changes;
        const int turns = now.turns();
#pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            await_copies<kAhead - 1>();
            if (const int element = element_of(turn); changes && now.has(element)) {
                State s = read(place);
                update_quad<kKind>(rates, s, *reinterpret_cast<const float4*>(gradient + gradient_index(element)));
                write<kKind, T>(a, now.parameter(element), s);
            }
            if (turn + kAhead < turns)
                prefetch(now, turn + kAhead, place);
            else
                prefetch(next, turn + kAhead - turns, place);
            place = place + 1 == kAhead ? 0 : place + 1;
        }
        if (more) hopper::give_turn<kThreads>(kGradientRead);
        now = next;
    }
}

template <OptimizerKind kKind, class T>
__global__ void __launch_bounds__(kThreads, 1)
    tile_update_kernel(const __grid_constant__ UpdateArgs a, const UpdateTile* tiles, int count) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ Step of_tile[2];
    __shared__ bool last_block;
    const std::uint32_t base = shared_address(memory_of_block), operands = (base + 1023) / 1024 * 1024;
    unsigned char* memory = memory_of_block + (operands - base);
    auto* gradient = reinterpret_cast<float*>(memory + kGradient);
    if (threadIdx.x < kProductThreads) {
        hopper::take_registers<kProductRegisters>();
        compute_gradients<T>(a, tiles, count, operands, gradient, of_tile);
    } else {
        hopper::give_registers<kUpdateRegisters>();
        apply_gradients<kKind, T>(a, tiles, count, memory, gradient, of_tile);
    }
    close_when_last(a, &last_block);
}

using TileUpdate = void (*)(UpdateArgs, const UpdateTile*, int);
template <class T>
TileUpdate kernel_for(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::sgd: return tile_update_kernel<OptimizerKind::sgd, T>;
        case OptimizerKind::adam: return tile_update_kernel<OptimizerKind::adam, T>;
        case OptimizerKind::adamw: break;
    }
    return tile_update_kernel<OptimizerKind::adamw, T>;
}

}  // namespace

int tile_update_blocks(const Context& c) { return c.shared_limit >= kBytes ? c.multiprocessors : 0; }

KernelResult make_tile_update(Context& c, const UpdateArgs& a, const std::vector<UpdateTile>& tiles, const DeviceTable& held) {
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(UpdateTile)));
    const TileUpdate kernel = a.copies_f16 ? kernel_for<f16>(a.p.kind) : kernel_for<bf16>(a.p.kind);
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const int count = static_cast<int>(tiles.size()), blocks = std::min(tile_update_blocks(c), count);
    return in_order({make_launch(c, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), kBytes, a, table, count)}, held);
}

}  // namespace millrace::ops::cuda
