// The first kernel of weight_gradient.cu for whole warpgroups: the same probabilities and results.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// Products become probabilities, less one where one of the warp's 16 entries from `first` on is the row's target; `of` has the
/// rows of the tile, bias this thread's two entries, both in units of log 2. Adds them up for each entry.
__device__ inline void to_gradients(Numbers& products, const RowInfo* of, const float (&bias)[2], float (&sum)[2], int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    bool owned = false;
#pragma unroll
    for (int i = 0; i < kRows; i += 32) {
        const int target = of[lane + i].target;
        owned = owned || (target >= first && target < first + 16);
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
        const float4 both = *reinterpret_cast<const float4*>(of + column_of(n, 0));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& product = products[n / 8][n % 8 * 4 + i];
            product = exp2_fast(fmaf(product, kLog2E, bias[i / 2] - (i % 2 == 0 ? both.x : both.z)));
        }
    }
    if (__any_sync(0xffffffffu, owned)) {
#pragma unroll
        for (int n = 0; n < kRows / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (of[column_of(n, i)].target - first == lane / 4 + i / 2 * 8) products[n / 8][n % 8 * 4 + i] -= 1;
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i % 4 / 2] += products[i / 32][i % 32];
}

__global__ void __launch_bounds__(warpgroups::kThreads, 1) warpgroup_weight_gradient_kernel(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ int counts[32];
    __shared__ float share;  // not in a register: they are scarce
    const Memory memory(memory_of_block);
    const int begin = blockIdx.x * kRows, part = blockIdx.y, k = blockIdx.z;
    const int all = (a.rows + kRows - 1) / kRows;
    const int tile = all * part / a.weight_parts, count = all * (part + 1) / a.weight_parts - tile;
    if (threadIdx.x == 0) memory.begin();
    begin_kernel();
    if (a.direct) {
        const float found = token_share(a, k, counts);
        if (threadIdx.x == 0) share = found;
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        hopper::give_registers<24>();
        stage_rows(a.weight, k, begin, a.shape.vocabulary, a.cols, memory.own());
        hopper::copies_arrive(memory.own_filled());
        fill_ring(memory, count, [&](int n, int stage) {
            const int row = (tile + n) * kRows, pair = 2 * threadIdx.x;
            stage_rows(a.x, k, row, a.rows, a.cols, memory.tile(stage));
            if (pair < kRows) copy16(shared_address(memory.extra<RowInfo>(stage) + pair), a.info_of(k) + row + pair, true);
        });
    } else {
        hopper::take_registers<240>();
        const int group_entry = begin + (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
        const int warp_entry = group_entry + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
        float bias[2], bias_sum[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int v = group_entry + row_of(half);
            bias[half] = a.bias && v < a.shape.vocabulary ? a.bias.row(k, 0, 0)[v] * kLog2E : 0;
        }
        Numbers sums = {};
        const auto change = [&](int, int stage, Numbers& products) {
            to_gradients(products, memory.extra<RowInfo>(stage), bias, bias_sum, warp_entry);
        };
        multiply_ring<true>(memory, count, sums, change, [] {});
        const int left = a.shape.vocabulary - group_entry;
        put_sums(sums, a.weight_target(part, k, group_entry, share), left, a.cols);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(bias_sum[half]);
            if (const int row = row_of(half); threadIdx.x % 4 == 0 && row < left)
                a.put_bias(part, k, group_entry + row, sum, share);
        }
    }
}

}  // namespace

KernelResult make_warpgroup_weight_gradient(Context& c, const Args& a) {
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(warpgroup_weight_gradient_kernel)));
    const dim3 grid(blocks_for(a.shape.vocabulary, kRows), static_cast<unsigned>(a.weight_parts),
                    static_cast<unsigned>(a.members));
    return make_launch(c, warpgroup_weight_gradient_kernel, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a);
}

}  // namespace millrace::ops::cuda::vocabulary
