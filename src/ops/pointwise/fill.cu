// Constants in whole 16-byte runs; neighbouring records share a launch.

#include <cstring>

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"
#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kThreads = 256, kRunsPerThread = 4, kMostFills = 4;

struct Fill {
    std::byte* data;
    std::int64_t stride_k, runs;  ///< bytes between members; runs of 16 bytes in each
    std::uint32_t pattern;
};
struct Fills {
    Fill all[kMostFills];
};

/// blockIdx: part, -, member; blockIdx.y: fill.
__global__ void __launch_bounds__(kThreads) fill_runs_kernel(const __grid_constant__ Fills fills) {
    begin_kernel();
    const Fill& f = fills.all[blockIdx.y];
    uint4* to = reinterpret_cast<uint4*>(f.data + static_cast<std::int64_t>(blockIdx.z) * f.stride_k);
    const uint4 run = make_uint4(f.pattern, f.pattern, f.pattern, f.pattern);
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < f.runs;
         i += static_cast<std::int64_t>(gridDim.x) * kThreads)
        to[i] = run;
}

/// Whether every member's elements lie one behind the other in whole runs.
bool in_runs(const Operand& o) {
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    if (o.dtype == DType::f64 || o.dtype == DType::u8) return false;
    return o.count() > 0 && o.g == 1 && (o.rows == 1 || o.stride_row == o.cols) &&
           std::int64_t{o.rows} * o.cols * size % 16 == 0 && whole_runs(o);
}

std::uint32_t pattern_of(DType type, double value) {
    const auto single = static_cast<float>(value);
    std::uint32_t bits = 0;
    if (type == DType::i32) {
        const auto whole = static_cast<std::int32_t>(single);
        std::memcpy(&bits, &whole, sizeof bits);
        return bits;
    }
    if (type == DType::bf16 || type == DType::f16) {
        bits = type == DType::bf16 ? tensor::to_bf16(single) : tensor::to_f16(single);
        return bits | bits << 16;
    }
    std::memcpy(&bits, &single, sizeof bits);
    return bits;
}

}  // namespace

Match match_fills(const Context&, const Window& records) {
    std::size_t count = 0;
    while (count < records.size() && count < kMostFills && records[count].record->op == &fill::kDef &&
           in_runs(records[count][fill::out]) && records[count][fill::out].k == records[0][fill::out].k)
        ++count;
    return Match::first(count);
}

KernelResult make_fills(Context& c, std::span<const Bound> records) {
    Fills fills{};
    std::int64_t most = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const Operand& o = records[i][fill::out];
        const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
        fills.all[i] = {static_cast<std::byte*>(o.data), o.stride_k * size, std::int64_t{o.rows} * o.cols * size / 16,
                        pattern_of(o.dtype, records[i].params<FillParams>().value)};
        most = std::max(most, fills.all[i].runs);
    }
    const dim3 grid(std::clamp(blocks_for(most, kThreads * kRunsPerThread), 1u, 4096u), records.size(), records[0][fill::out].k);
    return make_launch(c, fill_runs_kernel, grid, dim3(kThreads), 0, fills);
}

}  // namespace millrace::ops::cuda
