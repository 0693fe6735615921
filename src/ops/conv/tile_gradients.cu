// The weight gradients of a convolution on tensor cores: every block sums some tiles of maps in registers and writes a slab.

#include "ops/conv/launch.cuh"
#include "ops/conv/tiles.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kPositions = 128, kTapGroup = 3, kDown = 4, kAcross = kConvWarps / kDown, kMostDown = 3, kMostSlabs = 128;

struct SumsArgs {
    ConvArgs<bf16> conv;
    ConvTiling tiling;
    WeightSums sums;
    int chunk, chunks, dz_offset;  ///< channels of x at once; how often; elements of shared memory in front of dz
};

/// kTiles: eights of channels of dz per warp.
template <int kTiles>
__global__ void __launch_bounds__(kConvThreads) conv_sums_tile_kernel(const __grid_constant__ SumsArgs m) {
    constexpr int kColumns = 8 * kTiles * kAcross, kStrideZ = kColumns + kRowPad, kThreadsPerColumn = kConvThreads / kColumns;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16* region = reinterpret_cast<bf16*>(memory);
    bf16* dz = region + m.dz_offset;
    __shared__ float bias_parts[kConvThreads];
    begin_kernel();
    const ConvArgs<bf16>& a = m.conv;
    const ConvParams& p = a.p;
    const ConvTiling& t = m.tiling;
    const int outs = (p.out + kColumns - 1) / kColumns, k = blockIdx.z / outs, n = blockIdx.z % outs * kColumns;
    const int first_tap = blockIdx.y / m.chunks * kTapGroup, c = blockIdx.y % m.chunks * m.chunk;
    const int stride = m.chunk + kRowPad, tiles_down = min(kTapGroup, t.taps() - first_tap) * (m.chunk / 16);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = warp / kAcross, across = warp % kAcross * 8 * kTiles;
    const float scale = dropout_rule(dropout_key(a.dropout(), a.state, k)).factor;
    const int used = t.maps * t.rows * p.width, pos_a = lane / 16 * 8 + lane % 8, pos_b = lane / 8 % 2 * 8 + lane % 8;
    const bool sums_bias = blockIdx.y == 0;
    float acc[kMostDown][kTiles][4] = {}, bias = 0;
    for (int tile = blockIdx.x; tile < t.tiles; tile += gridDim.x) {
        const int vectors = m.chunk / 8;
        for (int i = threadIdx.x; i < t.region() * vectors; i += kConvThreads)
            *reinterpret_cast<uint4*>(region + i / vectors * stride + i % vectors * 8) =
                eight_of_x(a, k, region_position(p, t, a.rows, tile, i / vectors), c + i % vectors * 8);
        for (int i = threadIdx.x; i < kPositions * (kColumns / 8); i += kConvThreads) {
            const int position = i / (kColumns / 8), o = n + i % (kColumns / 8) * 8;
            ConvPosition at = position_in(p, t, a.rows, tile, min(position, used - 1));
            if (position >= used || o >= p.out) at.row = -1;
            *reinterpret_cast<uint4*>(dz + position * kStrideZ + i % (kColumns / 8) * 8) = eight_of_dz(a, scale, k, at, o);
        }
        __syncthreads();
        if (sums_bias)
            for (int row = threadIdx.x / kColumns; row < kPositions; row += kThreadsPerColumn)
                bias += __bfloat162float(dz[row * kStrideZ + threadIdx.x % kColumns]);
        for (int d = 0; d < kPositions; d += 16) {
            std::uint32_t right[kTiles / 2][4];
#pragma unroll
            for (int pair = 0; pair < kTiles / 2; ++pair)
                load_transposed(right[pair], dz + (d + pos_b) * kStrideZ + across + 16 * pair + lane / 16 * 8);
            const int position = d + pos_a;
            const bf16* at = region + (position < used ? t.region_of(p, position) : 0) * stride + lane / 8 % 2 * 8;
#pragma unroll
            for (int i = 0; i < kMostDown; ++i) {
                const int number = down + kDown * i;
                if (number >= tiles_down) break;
                std::uint32_t left[4];
                const int tap = first_tap + number / (m.chunk / 16);
                load_transposed(left, at + t.tap_offset(tap) * stride + number % (m.chunk / 16) * 16);
#pragma unroll
                for (int pair = 0; pair < kTiles / 2; ++pair) {
                    mma16<bf16>(acc[i][2 * pair], left, right[pair][0], right[pair][1]);
                    mma16<bf16>(acc[i][2 * pair + 1], left, right[pair][2], right[pair][3]);
                }
            }
        }
        __syncthreads();
    }
    float* sums = m.sums.at(p, a.members, blockIdx.x, k);
#pragma unroll
    for (int i = 0; i < kMostDown; ++i) {
        const int number = down + kDown * i;
        if (number >= tiles_down) break;
        const int tap = first_tap + number / (m.chunk / 16);
        const std::int64_t row = std::int64_t{tap} * p.in + c + number % (m.chunk / 16) * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int o = n + across + 8 * j + lane % 4 * 2 + part % 2;
                if (o < p.out) sums[(row + part / 2 * 8) * p.out + o] = acc[i][j][part];
            }
    }
    if (!sums_bias) return;
    bias_parts[threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.x >= kColumns || n + static_cast<int>(threadIdx.x) >= p.out) return;
    for (int part = 1; part < kThreadsPerColumn; ++part) bias += bias_parts[part * kColumns + threadIdx.x];
    sums[std::int64_t{m.sums.depth} * p.out + n + threadIdx.x] = bias;
}

template <int kTiles>
base::Result<KernelPtr> make_sums(Context& c, const ConvArgs<bf16>& args, const WeightSums& sums) {
    constexpr int kColumns = 8 * kTiles * kAcross;
    const ConvParams& p = args.p;
    SumsArgs m{args, ConvTiling(p, args.rows, kPositions), sums, conv_chunk(p.in), 0, 0};
    m.chunks = p.in / m.chunk;
    m.dz_offset = (m.tiling.region() * (m.chunk + kRowPad) + 7) / 8 * 8;
    const std::size_t bytes = sizeof(bf16) * (std::size_t(m.dz_offset) + kPositions * (kColumns + kRowPad));
    if (!m.tiling.fits() || bytes > c.shared_limit) return KernelPtr{};
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(conv_sums_tile_kernel<kTiles>)));
    const dim3 grid(static_cast<unsigned>(sums.slabs), blocks_for(m.tiling.taps(), kTapGroup) * static_cast<unsigned>(m.chunks),
                    static_cast<unsigned>(args.members) * blocks_for(p.out, kColumns));
    return make_kernel([stream = c.stream, m, bytes, grid] {
        launch(conv_sums_tile_kernel<kTiles>, grid, dim3(kConvThreads), bytes, stream, m);
    });
}

}  // namespace

int conv_slabs(const ConvParams& p, int rows) { return std::min(ConvTiling(p, rows, kPositions).tiles, kMostSlabs); }

base::Result<KernelPtr> make_conv_weight_sums(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums) {
    if (a.p.out <= 32) return make_sums<2>(c, a, sums);
    return a.p.out <= 64 ? make_sums<4>(c, a, sums) : make_sums<8>(c, a, sums);
}

}  // namespace millrace::ops::cuda
