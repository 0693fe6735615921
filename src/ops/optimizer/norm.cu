// The global norm of the gradients of all members.

#include <algorithm>
#include <vector>

#include "ops/cuda/squares.h"
#include "ops/optimizer/norm.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256;
constexpr int kNormPerMultiprocessor = 6;  ///< blocks of norm_slices_kernel

/// What a sum of squares is made of: a member's elements [begin, end), or `parts` sums that the kernel which wrote them left, of
/// one group, member k's at k * stride.
struct Piece {
    std::int32_t begin, end;
    const float* sums = nullptr;
    std::int32_t parts = 0, stride = 0;
};
struct Pieces {
    const Piece* data;  ///< in ascending order
    int count;
};

/// The squares of elements [i, end) in steps of a block, of trainable groups alone.
__device__ float sum_of_range(const float* g, std::int64_t i, std::int64_t end, bool quads, const GroupState* group,
                              Cursor& cursor, const Segments& segments) {
    // Quads under way in a thread: with one, a slice of a large model takes a dozen rounds to L2.
    constexpr int kAtOnce = 4, kStep = 4 * kThreads;
    float sum = 0;
    while (i < end) {
        cursor.move(segments, i);
        const bool counts = group[cursor.now.group].trainable != 0;
        const std::int64_t stop = min(end, std::int64_t{cursor.now.end});
        float with = sum;  // chosen afterwards: the gradients need not wait for the flag
        if (quads) {
            while (i < stop) {
                const int left = static_cast<int>(stop - i);
                float4 v[kAtOnce];
#pragma unroll
                for (int q = 0; q < kAtOnce; ++q)
                    v[q] = q * kStep < left ? *reinterpret_cast<const float4*>(g + i + q * kStep) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (const float4& f : v) with += f.x * f.x + f.y * f.y + (f.z * f.z + f.w * f.w);
                i += kStep * min(kAtOnce, (left + kStep - 1) / kStep);  // no further: the next segment goes on there
            }
        } else {
            for (; i < stop; i += kThreads) with += g[i] * g[i];
        }
        if (counts) sum = with;
    }
    return sum;
}

/// kNormBlocks sums of a member's pieces, block b those from number b on in steps of gridDim.x. The pieces and the order of their
/// sums do not depend on the members. All members go from their first elements to their last, as the update goes back.
__global__ void __launch_bounds__(kThreads, blocks_at_once(kThreads, kNormPerMultiprocessor))
    norm_slices_kernel(Mat<const float> grads, Mat<float> scratch, bool quads, Groups groups, Segments segments, Pieces pieces) {
    __shared__ float sums[kNormBlocks][kThreads / 32];
    const int k = blockIdx.y, thread = static_cast<int>(threadIdx.x);
    const auto first_piece = [&](int number) { return number * pieces.count / kNormBlocks; };
    Cursor cursor(segments, pieces.data[first_piece(blockIdx.x)].begin);
    begin_kernel();
    const GroupState* group = groups.row(k);
    int count = 0;
    for (int number = blockIdx.x; number < kNormBlocks; number += gridDim.x, ++count) {
        float sum = 0;
        for (int p = first_piece(number); p < first_piece(number + 1); ++p) {
            const Piece piece = pieces.data[p];
            if (piece.sums == nullptr) {
                const std::int64_t i = piece.begin + (quads ? 4 : 1) * thread;
                sum += sum_of_range(grads.row(k, 0, 0), i, piece.end, quads, group, cursor, segments);
                continue;
            }
            cursor.move(segments, piece.begin);
            if (group[cursor.now.group].trainable != 0)
#pragma unroll 4
                for (int i = thread; i < piece.parts; i += kThreads) sum += piece.sums[std::int64_t{k} * piece.stride + i];
        }
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (threadIdx.x % 32 == 0) sums[count][threadIdx.x / 32] = sum;
    }
    __syncthreads();  // once for all sums: between them no warp waits for another
    if (thread >= count) return;
    float total = 0;
    for (const float sum : sums[thread]) total += sum;
    scratch.row(k, 0, 0)[blockIdx.x + threadIdx.x * gridDim.x] = total;
}

/// As many blocks of a member as run at once, each with as many sums.
unsigned norm_blocks(const Context& c, unsigned members) {
    const unsigned most = std::max(1u, static_cast<unsigned>(kNormPerMultiprocessor * c.multiprocessors) / members);
    return blocks_for(kNormBlocks, static_cast<int>(blocks_for(kNormBlocks, static_cast<int>(most))));
}

/// The sums that were left of a gradient which begins at `at`, one piece for neighbouring matrices of one segment. A matrix of
/// several segments is read: its sums are not kept apart by segment.
void append_left(const GradientSquares& left, std::int64_t at, const std::vector<Segment>& segments, std::vector<Piece>& pieces) {
    const Operand& o = left.gradient;
    const std::int64_t size = std::int64_t{o.rows} * o.cols;
    const int parts = left.parts / o.g;  // of a matrix; kernels leave them in the order of the matrices
    auto segment = segments.begin();
    for (int g = 0, next = 0; g < o.g; g = std::max(next, g + 1)) {
        const std::int64_t begin = at + g * size;
        while (segment->end <= begin) ++segment;
        for (next = g; next < o.g && at + (next + 1) * size <= segment->end;) ++next;
        if (next > g)
            pieces.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(at + next * size),
                              static_cast<const float*>(left.sums) + g * parts, (next - g) * parts, left.parts});
    }
}

/// The whole arena without what was left of `squares` in kNormBlocks slices, and that.
std::vector<Piece> pieces_of(const Operand& grads, const std::vector<std::shared_ptr<GradientSquares>>& squares,
                             const std::vector<Segment>& segments) {
    std::vector<Piece> pieces;
    for (const auto& one : squares)
        if (const std::int64_t at = place_in(one->gradient, grads); at >= 0) append_left(*one, at, segments, pieces);
    std::ranges::sort(pieces, {}, &Piece::begin);
    std::int64_t remaining = grads.cols;
    for (const Piece& piece : pieces) remaining -= piece.end - piece.begin;
    // Where little is to be read, each piece costs a block its latency: no shorter ones than a block reads at once.
    const std::int64_t equal = (remaining + 4 * kNormBlocks - 1) / (4 * kNormBlocks) * 4,
                       slice = pieces.empty() ? equal : std::max<std::int64_t>(equal, 16 * kThreads);
    std::vector<Piece> all;
    std::int64_t at = 0;
    const auto read_until = [&](std::int64_t end) {
        for (; at < end; at = std::min(at + slice, end))
            all.push_back({static_cast<std::int32_t>(at), static_cast<std::int32_t>(std::min(at + slice, end))});
    };
    for (const Piece& piece : pieces) {
        read_until(piece.begin);
        all.push_back(piece);
        at = piece.end;
    }
    read_until(grads.cols);
    return all;
}

__global__ void norm_finish_kernel(Mat<const float> scratch, States state) {
    __shared__ float shared[32];
    begin_kernel();
    MemberState m = state[blockIdx.x];
    finish_norm(m, scratch.row(blockIdx.x, 0, 0), shared);
    if (threadIdx.x == 0) state[blockIdx.x] = m;
}

}  // namespace

base::Result<std::vector<Segment>> read_segments(const Context& c, const Operand& o) {
    std::vector<Segment> segments(static_cast<std::size_t>(o.rows));
    const std::size_t bytes = segments.size() * sizeof(Segment);
    // By address: that of a program which is only measured is the host's.
    cudaError_t code = cudaMemcpyAsync(segments.data(), o.data, bytes, cudaMemcpyDefault, c.stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(c.stream);
    if (code != cudaSuccess) return cuda_error(code, "reading the segments of groups");
    return segments;
}

KernelResult make_norm_slices(Context& c, const Bound& b) {
    const Operand& g = b[grad_norm::grads];
    const auto members = static_cast<unsigned>(g.k);
    MILLRACE_LET(segments, read_segments(c, b[grad_norm::segments]));
    const auto squares = current_squares(c);
    const std::vector<Piece> pieces = pieces_of(g, squares, segments);
    if (pieces.empty()) return make_zeros(c, b[grad_norm::scratch]);
    MILLRACE_LET(table, upload_table(c, pieces.data(), pieces.size() * sizeof(Piece)));
    const bool in_quads = quads(g) && g.cols % 4 == 0;
    const unsigned blocks = norm_blocks(c, members);
    const Operand &scratch = b[grad_norm::scratch], &groups = b[grad_norm::groups], &table_of_segments = b[grad_norm::segments];
    const Pieces all{static_cast<const Piece*>(table), static_cast<int>(pieces.size())};
    auto kernel = make_launch(c, norm_slices_kernel, dim3(blocks, members), dim3(kThreads), 0, g, scratch, in_quads, groups,
                              table_of_segments, all);
    return in_order({std::move(kernel)}, table, squares);
}

KernelResult make_grad_norm(Context& c, const Bound& b) {
    MILLRACE_LET(slices, make_norm_slices(c, b));
    const Operand& s = b[grad_norm::state];
    return in_order(
        {std::move(slices), make_launch(c, norm_finish_kernel, dim3(s.k), dim3(kNormBlocks), 0, b[grad_norm::scratch], s)});
}

}  // namespace millrace::ops::cuda
