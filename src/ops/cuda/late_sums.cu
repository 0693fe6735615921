#include "ops/cuda/late_sums.h"

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kColumns = 32, kLanes = 32;
static_assert(kColumns == kLanes);

/// What a block adds up: some neighbouring columns of one matrix.
struct Unit {
    const float* from;
    float* to;
    std::int32_t chunks, pitch, cols, accumulate;
};

__global__ void __launch_bounds__(kColumns* kLanes) chunk_sums_kernel(const Unit* units, bool early) {
    __shared__ float sums[kLanes][kColumns + 1];
    const Unit u = units[blockIdx.x];  // no kernel writes the table
    if (!early) begin_kernel();
    int col = static_cast<int>(threadIdx.x);
    float sum = 0;
    if (col < u.cols) {
#pragma unroll 8
        for (int chunk = static_cast<int>(threadIdx.y); chunk < u.chunks; chunk += kLanes)
            sum += u.from[std::int64_t{chunk} * u.pitch + col];
    }
    if (early) begin_kernel();
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    // A warp has a column now.
    col = static_cast<int>(threadIdx.y);
    sum = sums[threadIdx.x][threadIdx.y];
    for (int d = kLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0 && col < u.cols) put(u.to + col, sum, u.accumulate != 0);
}

/// early: the launch in front made none of these chunks.
base::Result<KernelPtr> make_sums(Context& c, std::span<const std::shared_ptr<ChunkSums>> all, bool early) {
    std::vector<Unit> units;
    for (const auto& s : all)
        for (int k = 0; k < s->out.k; ++k)
            for (int g = 0; g < s->out.g; ++g)
                for (int col = 0; col < s->out.cols; col += kColumns)
                    units.push_back({s->partial + (std::int64_t{k} * s->out.g + g) * s->chunks * s->pitch + col,
                                     s->out.at<float>(k, g) + col, s->chunks, s->pitch, std::min(kColumns, s->out.cols - col),
                                     s->accumulate ? 1 : 0});
    if (units.empty()) return KernelPtr{};
    MILLRACE_LET(table, upload_table(c, units.data(), units.size() * sizeof(Unit)));
    std::vector<DeviceTable> held;
    for (const auto& s : all) held.push_back(s->held);
    const dim3 grid(static_cast<unsigned>(units.size()));
    return in_order({make_launch(c, chunk_sums_kernel, grid, dim3(kColumns, kLanes), 0, table, early)}, held);
}

}  // namespace

KernelResult with_sums(Context& c, KernelPtr chunks, std::span<const ChunkSums> sums) {
    std::vector<std::shared_ptr<ChunkSums>> wanted, before;
    for (const ChunkSums& s : sums)
        if (s.out.present()) wanted.emplace_back(std::make_shared<ChunkSums>(s))->made = c.at;
    for (const auto& waiting : c.late_sums)
        if (std::ranges::any_of(wanted, [&](const auto& s) { return Box(s->out).meets(Box(waiting->out)); }))
            before.push_back(waiting);
    if (c.ahead == nullptr && before.empty()) {
        c.late_sums.insert(c.late_sums.end(), wanted.begin(), wanted.end());
        return KernelResult(std::move(chunks));
    }
    std::erase_if(c.late_sums, [&](const auto& s) { return std::ranges::find(before, s) != before.end(); });
    Kernels steps;
    steps.emplace_back(std::move(chunks));
    for (const auto& some : {before, wanted}) {
        MILLRACE_LET(made, make_sums(c, some, false));
        if (made) steps.emplace_back(std::move(made));
    }
    return in_order(std::move(steps));
}

base::Result<KernelPtr> take_late_sums(Context& c) {
    const auto sums = std::exchange(c.late_sums, {});
    if (sums.empty()) return KernelPtr{};
    const Bound& in_front = c.records[c.at];
    const bool early = !in_front.condition.present() && writes_elements(in_front) &&
                       std::ranges::all_of(sums, [&](const auto& s) { return s->made < c.at; });
    return make_sums(c, sums, early);
}

bool touches_late_sums(const Context& c, const Bound& record) {
    return std::ranges::any_of(c.late_sums, [&](const auto& s) {
        return std::ranges::any_of(record.operands,
                                   [&](const tensor::Operand& o) { return o.present() && Box(o).meets(Box(s->out)); });
    });
}

}  // namespace millrace::ops::cuda
