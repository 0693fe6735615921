// Weight gradients that are never stored: each block computes tiles of dw = dz^T x and applies them to parameters, moments and
// 16-bit copy. Memory decides, so that nothing waits for it: while a tile is updated, the operands of the next one are copied to
// shared memory, and each thread's parameters and moments of the next eight rows, across the border of tiles, too. Products are
// those of two warpgroups (compute capability 9.0a), 64 rows each; a warp then takes its 16 rows through shared memory, so that
// it goes through them one whole row after the other. Gradients that were stored come in place of the operands.

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/warpgroup_product.cuh"
#include "ops/optimizer/wgrad_update.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kWarpRows = kUpdateOutputs / kWarps;
constexpr int kSlots = 3;  ///< tiles a block knows: this one and the next two
constexpr int kAhead = 8;  ///< rows whose parameters and moments are under way
/// Operands lie in shared memory in parts of 64 columns, each as hopper.cuh says: two of dz, one for each warpgroup, and two of
/// x. Behind them each warp has its rows of the gradient, then its ring of rows of parameters and moments.
constexpr std::uint32_t kPartBytes = kUpdateDepth * 128, kRight = kUpdateOutputs / 64 * kPartBytes;
constexpr std::uint32_t kOperandBytes = kRight + kUpdateInputs / 64 * kPartBytes;
constexpr std::uint32_t kRowBytes = kUpdateInputs * 4, kGradientBytes = kWarpRows * kRowBytes;
constexpr std::uint32_t kRingBytes = kAhead * 3 * kRowBytes;
constexpr std::size_t kBytes = 1024 + kOperandBytes + kWarps * (kGradientBytes + kRingBytes);
static_assert(kWarps * kGradientBytes <= kOperandBytes);
static_assert(kWarpRows % kAhead == 0);  // a row's place in the ring does not depend on the tile

/// The operands of a tile, or each thread's quads of a stored gradient.
__device__ void stage_tile(const UpdateTile& t, std::uint32_t to) {
    if (t.stored == nullptr) {
        hopper::stage_columns<kThreads, kUpdateDepth, kUpdateOutputs>(t.dz, t.ld_dz, t.rows, t.outputs, to);
        hopper::stage_columns<kThreads, kUpdateDepth, kUpdateInputs>(t.x, t.ld_x, t.rows, t.inputs, to + kRight);
        return;
    }
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int first = warp * kWarpRows * kUpdateInputs + 4 * lane;
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
        const int element = first + r * kUpdateInputs;
        hopper::copy16(to + 4 * element, t.stored + element, element < t.inputs ? 16 : 0);
    }
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
/// Brings what step_of reads to the first cache, by a warp.
__device__ void look_ahead(const UpdateArgs& a, const UpdateTile& t) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const void* from = a.slices.row(t.member, 0, 0) + lane * 32;
    constexpr int kLast = int{sizeof(MemberState)} - 4;
    static_assert(kLast < 3 * 64);  // three lanes reach all of it
    if (lane >= 8) from = reinterpret_cast<const unsigned char*>(&a.state[t.member]) + min(64 * (lane - 8), kLast);
    if (lane == 11) from = &a.groups.row(t.member)[t.group];
    if (lane == 12) from = &a.groups.row(t.member)[t.group].last_applied;
    if (lane < 13) asm volatile("{ .reg .b32 t; ld.global.ca.b32 t, [%0]; }" ::"l"(from) : "memory");
}
__device__ Step step_of(const UpdateArgs& a, const UpdateTile& t) {
    const MemberState m = state_of(a, t.member);
    const GroupState group = a.groups.row(t.member)[t.group];
    return {Rates(m, group), m.nonfinite == 0 && group.updated()};
}

/// A thread's quads of a tile: four columns of its warp's rows.
struct Quads {
    std::uint32_t at = 0;  ///< the first, in the arenas of all members
    int ld = 0, count = 0;

    __device__ Quads() = default;
    __device__ explicit Quads(const UpdateTile& t) : ld(t.ld) {
        const int row = static_cast<int>(threadIdx.x) / 32 * kWarpRows, col = static_cast<int>(threadIdx.x) % 32 * 4;
        at = t.at + row * t.ld + col;
        const int there = t.stored != nullptr ? (t.inputs - col + kUpdateInputs - 1) / kUpdateInputs
                          : col < t.inputs    ? t.outputs
                                              : 0;
        count = min(kWarpRows, there - row);
    }
    __device__ std::uint32_t place(int row) const { return at + row * ld; }
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

/// The next step reads the copies alone, so the rest need not stay in the cache.
template <OptimizerKind kKind>
__device__ void write(const UpdateArgs& a, std::uint32_t at, const State& s) {
    __stcs(reinterpret_cast<float4*>(a.params.data + at), s.p);
    if (kKind != OptimizerKind::sgd || a.m) __stcs(reinterpret_cast<float4*>(a.m.data + at), s.m);
    if (kKind != OptimizerKind::sgd) __stcs(reinterpret_cast<float4*>(a.v.data + at), s.v);
    *reinterpret_cast<uint2*>(a.copy16.data + at) = make_uint2(pair_bits(s.p.x, s.p.y, false), pair_bits(s.p.z, s.p.w, false));
}

/// Where quad `quad` of a warp's row lies in its shared memory: those of neighbouring rows are in different banks.
__device__ int gradient_place(int row, int quad) { return row * kUpdateInputs + (quad ^ (row & 7) << 1) * 4; }

/// A warp's rows of a product of 128 columns, as thread t holds them: row t % 32 / 4 (+ 8), columns 8 j + 2 (t % 4) (+ 1).
__device__ void put_products(const float (&sums)[2][32], float* gradient) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kUpdateInputs / 8; ++j) {
        const float* v = sums[j / 8] + j % 8 * 4;
        float* to = gradient + gradient_place(lane / 4, 2 * j + (lane & 3) / 2) + (lane & 1) * 2;
        *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
        *reinterpret_cast<float2*>(to + 8 * kUpdateInputs) = make_float2(v[2], v[3]);
    }
}
/// The same of a stored gradient: number 4 r + i of all sums is column 4 (t % 32) + i of row r.
__device__ void put_stored(const float (&sums)[2][32], float* gradient) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
        *reinterpret_cast<float4*>(gradient + gradient_place(r, static_cast<int>(threadIdx.x) % 32)) =
            *reinterpret_cast<const float4*>(sums[r / 8] + r % 8 * 4);
}

template <OptimizerKind kKind>
__global__ void __launch_bounds__(kThreads, 1)
    tile_update_kernel(const __grid_constant__ UpdateArgs a, const UpdateTile* tiles, int count) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ UpdateTile of_slot[kSlots];
    __shared__ Step of_step[2];
    __shared__ bool last_block;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t base = shared_address(memory_of_block), operands = (base + 1023) / 1024 * 1024;
    unsigned char* memory = memory_of_block + (operands - base);
    auto* gradient = reinterpret_cast<float*>(memory + kOperandBytes + warp * kGradientBytes);
    const std::uint32_t ring = kOperandBytes + kWarps * kGradientBytes + warp * kRingBytes + 16 * lane;
    const int stride = gridDim.x;
    int n = blockIdx.x, slot = 0, parity = 0;
    const auto next_slot = [](int s) { return s + 1 == kSlots ? 0 : s + 1; };
    const auto describe = [&](int number, int to) {
        const int piece = 16 * threadIdx.x;
        if (number < count && piece < static_cast<int>(sizeof(UpdateTile)))
            hopper::copy16(shared_address(&of_slot[to]) + piece, reinterpret_cast<const unsigned char*>(tiles + number) + piece,
                           16);
    };
    // Rows `row` and the next one, in one group of copies. The lane that asks is the one that reads, so that it need not wait for
    // others.
    const auto ask = [&](const Quads& of, int row) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (row + i >= of.count) continue;
            const std::uint32_t at = of.place(row + i), to = operands + ring + (row % kAhead + i) * (3 * kRowBytes);
            hopper::copy16(to, a.params.data + at, 16);
            if (kKind != OptimizerKind::sgd || a.m) hopper::copy16(to + kRowBytes, a.m.data + at, 16);
            if (kKind != OptimizerKind::sgd) hopper::copy16(to + 2 * kRowBytes, a.v.data + at, 16);
        }
        commit_copies();
    };
    const auto read = [&](int in_ring) {
        const auto* from = reinterpret_cast<const float4*>(memory + ring + in_ring * (3 * kRowBytes));
        State s{};
        s.p = from[0];
        if (kKind != OptimizerKind::sgd || a.m) s.m = from[kRowBytes / 16];
        if (kKind != OptimizerKind::sgd) s.v = from[2 * kRowBytes / 16];
        return s;
    };
    // No kernel writes tables, and what tiles read but the norm is older than the kernel before this one.
    describe(n, 0);
    describe(n + stride, 1);
    commit_copies();
    await_copies<0>();
    __syncthreads();
    stage_tile(of_slot[0], operands);
    commit_copies();
    Quads quads(of_slot[0]);
    for (int r = 0; r < kAhead; r += 2) ask(quads, r);
    begin_kernel();
    for (int k = n; k < a.members && warp == 0; k += stride) {
        const MemberState m = state_of(a, k);
        if (lane > 0) continue;
        a.state[k].grad_norm = m.grad_norm;  // other blocks have their own copy of these two
        a.state[k].clip_scale = m.clip_scale;
        report_member(a, k, m, *a.counter + 1);
    }
    for (; n < count; n += stride) {
        if (warp == 0) {
            const Step step = step_of(a, of_slot[slot]);
            if (lane == 0) of_step[parity] = step;
        }
        await_copies<kAhead / 2>();  // the newest copies are of rows
        hopper::copies_visible();
        __syncthreads();  // this tile's operands and step and the tile behind it are there
        const bool stored = of_slot[slot].stored != nullptr;
        float sums[2][32] = {};
        if (stored) {
#pragma unroll
            for (int r = 0; r < kWarpRows; ++r)
                *reinterpret_cast<float4*>(sums[r / 8] + r % 8 * 4) =
                    *reinterpret_cast<const float4*>(memory + warp * kGradientBytes + r * kRowBytes + 16 * lane);
        } else {
            const std::uint64_t dz = hopper::summed_rows(operands + warp / 4 * kPartBytes, kPartBytes),
                                x = hopper::summed_rows(operands + kRight, kPartBytes);
            hopper::products_begin();
#pragma unroll
            for (int i = 0; i < kUpdateDepth / 16; ++i)
                hopper::multiply_columns(sums[0], sums[1], dz + i * (16 * 128 / 16), x + i * (16 * 128 / 16));
            hopper::products_commit();
            hopper::products_wait<0>();
            hopper::hold(sums[0]);
            hopper::hold(sums[1]);
        }
        __syncthreads();  // all operands have been read
        const int following = next_slot(slot);
        Quads next;
        if (n + stride < count) {
            if (warp == 0) look_ahead(a, of_slot[following]);
            stage_tile(of_slot[following], operands);
            next = Quads(of_slot[following]);
        }
        describe(n + 2 * stride, next_slot(following));
        commit_copies();
        if (stored)
            put_stored(sums, gradient);
        else
            put_products(sums, gradient);
        __syncwarp();
        const Rates rates = of_step[parity].rates;
        const bool changes = of_step[parity].changes;
#pragma unroll 1
        for (int r = 0; r < kWarpRows; r += 2) {  // two rows at once: one alone waits for its own arithmetic
            await_copies<kAhead / 2 - 1>();
            if (changes) {
                State first = read(r % kAhead), second = read(r % kAhead + 1);
                update_quad<kKind>(rates, first, *reinterpret_cast<const float4*>(gradient + gradient_place(r, lane)));
                update_quad<kKind>(rates, second, *reinterpret_cast<const float4*>(gradient + gradient_place(r + 1, lane)));
                if (r < quads.count) write<kKind>(a, quads.place(r), first);
                if (r + 1 < quads.count) write<kKind>(a, quads.place(r + 1), second);
            }
            if (r + kAhead < kWarpRows)
                ask(quads, r + kAhead);
            else
                ask(next, r + kAhead - kWarpRows);
        }
        __syncwarp();  // the gradient has been read
        quads = next;
        slot = following;
        parity ^= 1;
    }
    close_when_last(a, &last_block);
}

using TileUpdate = void (*)(UpdateArgs, const UpdateTile*, int);
TileUpdate kernel_for(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::sgd: return tile_update_kernel<OptimizerKind::sgd>;
        case OptimizerKind::adam: return tile_update_kernel<OptimizerKind::adam>;
        case OptimizerKind::adamw: break;
    }
    return tile_update_kernel<OptimizerKind::adamw>;
}

}  // namespace

int tile_update_blocks(const Context& c) { return c.shared_limit >= kBytes ? c.multiprocessors : 0; }

KernelResult make_tile_update(Context& c, const UpdateArgs& a, const std::vector<UpdateTile>& tiles, const DeviceTable& held) {
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(UpdateTile)));
    const TileUpdate kernel = kernel_for(a.p.kind);
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const int count = static_cast<int>(tiles.size()), blocks = std::min(tile_update_blocks(c), count);
    return make_kernel([=, stream = c.stream, grid = dim3(static_cast<unsigned>(blocks))] {
        (void)held;
        launch(kernel, grid, dim3(kThreads), kBytes, stream, a, table, count);
    });
}

}  // namespace millrace::ops::cuda
