// The parts of a step on a GPU. NCCL moves bytes between ranks on the stream of the step, which captures it; sums are ours.

#include "comm/nccl.h"
#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/parts/parts.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256;

/// A block for each member.
__global__ void part_end_kernel(States states, Mat<float> running, int cols, Mat<std::int32_t> table, PartEndParams p) {
    begin_kernel();
    const int k = blockIdx.x;
    const std::uint32_t row = (states[k].micro - p.rank) / p.micro.world;
    auto* cell = reinterpret_cast<std::byte*>(table.row(k, 0, row));
    __syncthreads();  // all have read micro
    if (running) {
        float* moved = running.row(k, 0, 0);
        float* to = reinterpret_cast<float*>(cell + sizeof(PartSums));
        for (int c = threadIdx.x; c < cols; c += blockDim.x) {
            to[c] = moved[c];
            moved[c] = kUnmoved;
        }
    }
    if (threadIdx.x != 0) return;
    *reinterpret_cast<PartSums*>(cell) = take_sums(states[k]);
    close_micro(p.micro, states[k]);
}

/// blockIdx.y: member.
__global__ void add_part_kernel(Mat<float> gradients, Mat<float> sums, std::int64_t cols) {
    begin_kernel();
    float *g = gradients.row(blockIdx.y, 0, 0), *s = sums.row(blockIdx.y, 0, 0);
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < cols; i += stride)
        g[i] = s[i] += g[i];
}

struct Cells {
    const std::int32_t* data;
    std::int64_t members, rows, words;
    FoldParams p;

    Cells(const Operand& all, const FoldParams& params)
        : data(static_cast<const std::int32_t*>(all.data)),
          members(all.k),
          rows(all.rows / static_cast<std::int64_t>(params.world)),
          words(all.cols),
          p(params) {}
    __device__ const std::byte* of(int member, std::uint32_t part) const {
        return reinterpret_cast<const std::byte*>(data + cell_of(p, members, rows, words, member, part));
    }
};

__global__ void fold_sums_kernel(Cells cells, States states) {
    begin_kernel();
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= cells.members) return;
    MemberState& s = states[k];
    s.loss = s.penalty = 0;
    s.rows = s.correct = 0;
    for (std::uint32_t part = 0; part < cells.p.count; ++part) add_sums(s, *reinterpret_cast<const PartSums*>(cells.of(k, part)));
}

/// blockIdx: part of the columns, group, member.
__global__ void fold_running_kernel(Cells cells, Mat<float> value, int cols) {
    begin_kernel();
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    const std::int64_t element = cells.p.offset + static_cast<std::int64_t>(blockIdx.y) * cols + c;
    float& to = value.row(blockIdx.z, blockIdx.y, 0)[c];
    float sum = to;
    for (std::uint32_t part = 0; part < cells.p.count; ++part)
        sum = fold_statistic(sum, reinterpret_cast<const float*>(cells.of(blockIdx.z, part) + sizeof(PartSums))[element],
                             cells.p.momentum);
    to = sum;
}

/// x [ranks, count], one after the other.
__global__ void sum_ranks_kernel(const float* x, int ranks, std::int64_t count, float* out) {
    begin_kernel();
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += x[rank * count + i];
        out[i] = sum;
    }
}

unsigned stream_blocks(const Context& c, std::int64_t elements) {
    return std::max(1u, std::min(blocks_for(elements, kThreads), static_cast<unsigned>(4 * c.multiprocessors)));
}

/// An error of a kernel that was asked for stays until Backend::check().
void note(Context& c, base::Status status) {
    if (!status.ok() && c.group_error.ok()) (void)(c.group_error = std::move(status));
}

/// Equal pieces by all-to-all and all-gather; what is left over goes to every rank whole. Gives the memory that `steps` use.
base::Result<DeviceTable> add_ordered_sum(Context& c, const Operand& data, Kernels& steps) {
    const int ranks = c.nccl->ranks();
    const std::int64_t piece = data.count() / ranks, left = data.count() % ranks;
    MILLRACE_LET(received, lend_table(c, static_cast<std::size_t>(ranks * std::max(piece, left)) * sizeof(float)));
    float *all = static_cast<float*>(data.data), *own = all + c.nccl->rank() * piece, *rest = all + ranks * piece;
    auto* from = static_cast<float*>(received);
    if (piece > 0) {
        const std::size_t bytes = static_cast<std::size_t>(piece) * sizeof(float);
        steps.push_back(make_kernel([&c, all, from, bytes] { note(c, c.nccl->all_to_all(all, from, bytes, c.stream)); }));
        steps.push_back(
            make_launch(c, sum_ranks_kernel, dim3(stream_blocks(c, piece)), dim3(kThreads), 0, from, ranks, piece, own));
        steps.push_back(make_kernel([&c, all, own, bytes] { note(c, c.nccl->all_gather(own, all, bytes, c.stream)); }));
    }
    if (left > 0) {
        const std::size_t bytes = static_cast<std::size_t>(left) * sizeof(float);
        steps.push_back(make_kernel([&c, rest, from, bytes] { note(c, c.nccl->all_gather(rest, from, bytes, c.stream)); }));
        steps.push_back(make_launch(c, sum_ranks_kernel, dim3(1), dim3(kThreads), 0, from, ranks, left, rest));
    }
    return received;
}

}  // namespace

KernelResult make_part_end(Context& c, const Bound& b) {
    using namespace part_end;
    return make_launch(c, part_end_kernel, dim3(static_cast<unsigned>(b[state].k)), dim3(kThreads), 0, b[state], b[running],
                       b[running].cols, b[table], b.params<PartEndParams>());
}

KernelResult make_add_part(Context& c, const Bound& b) {
    const Operand& g = b[add_part::gradients];
    return make_launch(c, add_part_kernel, dim3(stream_blocks(c, g.cols), static_cast<unsigned>(g.k)), dim3(kThreads), 0, g,
                       b[add_part::sums], static_cast<std::int64_t>(g.cols));
}

KernelResult make_fold_sums(Context& c, const Bound& b) {
    const Operand& s = b[fold_sums::state];
    return make_launch(c, fold_sums_kernel, dim3(blocks_for(s.k, 64)), dim3(64), 0,
                       Cells(b[fold_sums::all], b.params<FoldParams>()), s);
}

KernelResult make_fold_running(Context& c, const Bound& b) {
    const Operand& v = b[fold_running::value];
    return make_launch(c, fold_running_kernel,
                       dim3(blocks_for(v.cols, 64), static_cast<unsigned>(v.g), static_cast<unsigned>(v.k)), dim3(64), 0,
                       Cells(b[fold_running::all], b.params<FoldParams>()), v, v.cols);
}

KernelResult make_exchange(Context& c, const Bound& b) {
    const Operand &gradients = b[exchange::gradients], &table = b[exchange::table], &all = b[exchange::all];
    const auto bytes = static_cast<std::size_t>(table.count()) * sizeof(std::int32_t);
    if (c.nccl == nullptr)
        return make_kernel([&c, from = table.data, to = all.data, bytes] {
            (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c.stream);
        });
    Kernels steps;
    DeviceTable received;
    const auto count = static_cast<std::size_t>(gradients.count());
    if (b.params<ExchangeParams>().by_library)
        steps.push_back(make_kernel(
            [&c, to = static_cast<float*>(gradients.data), count] { note(c, c.nccl->all_reduce(to, count, c.stream)); }));
    else
        MILLRACE_SET(received, add_ordered_sum(c, gradients, steps));
    steps.push_back(
        make_kernel([&c, from = table.data, to = all.data, bytes] { note(c, c.nccl->all_gather(from, to, bytes, c.stream)); }));
    return in_order(std::move(steps), received);
}

}  // namespace millrace::ops::cuda
