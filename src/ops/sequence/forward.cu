// The forward pass of a layer over short sequences. One block has a sequence, or a cluster of four has it: each then takes one
// head and a quarter of the columns of every product, and the blocks exchange rows through shared memory. Between the products
// the rows stay there; what later records read goes to global memory on the way, rounded where the separate kernels round.
// Sums run in the same order either way.

#include <utility>

#include "ops/attention/attention.h"
#include "ops/cuda/async_copy.cuh"
#include "ops/dense/dense.h"
#include "ops/sequence/attend.cuh"
#include "ops/sequence/cluster.cuh"
#include "ops/sequence/sequence.h"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {
namespace sequence {
namespace {

using tensor::Operand;

struct Linear {
    Matrices<const bf16> w;
    Matrices<bf16> y;
};

/// Parameters of 128 columns each, in the order of shared memory; the widest bias comes last.
enum Vector { in_bias, out_bias = 3, narrow_bias, gammas, betas = 7, widen_bias = 9, kOtherVectors = widen_bias };

struct ForwardArgs {
    Matrices<const bf16> x;
    Linear in, out, widen, narrow;
    Matrices<bf16> attended, saved;  ///< saved: before the activation, may be absent
    Matrices<const std::int32_t> lengths;
    Matrices<float> logsumexp;
    NormArgs norms[2];
    Matrices<const float> vectors[kOtherVectors + 2];
    int groups, positions;
    bool early;
};

/// One block of a layer over one sequence: kParts blocks share it, kInner columns between the two linear layers.
template <int kParts, int kWarps, int kInner>
struct Forward {
    static constexpr int kThreads = 32 * kWarps, kOwnRows = kRows / kParts;
    static constexpr int kPart = kWidth / kParts, kInnerPart = kInner / kParts;  ///< columns of a block
    static constexpr int kQkvPitch = (3 * kPart + 63) / 64 * 64;
    static constexpr int kRowWarps = kParts == 1 ? 1 : 2;  ///< of the products with few columns
    // Columns in several passes: with fewer sums a multiprocessor has registers for two blocks of eight warps. Four warps alone
    // cannot hide the way from L2, so that they fetch the weights of a whole product ahead.
    using In = Product<kRows / 16, 3, kParts == 1 ? 2 : 4>;
    using Widen = Product<kRows / 16, std::min(2, kInnerPart / kWarps / 8), kParts == 1 ? 2 : 4>;
    using Few = Product<kRows / kRowWarps / 16, kPart * kRowWarps / kWarps / 8, kParts == 1 ? 2 : 4>;
    static constexpr int kInPasses = 3 * kPart / kWarps / In::kColumns, kWidenPasses = kInnerPart / kWarps / Widen::kColumns;
    static_assert(kInPasses * kWarps * In::kColumns == 3 * kPart && kWidenPasses * kWarps * Widen::kColumns == kInnerPart);
    static_assert(kPart % (8 * In::kStrip) == 0);                // a strip is of queries, keys or values alone
    static constexpr int kTasks = kHeads / kParts * 4 / kWarps;  ///< tiles of queries that a warp takes
    /// Elements of shared memory: rows of the residual stream; what is added to them; queries, keys and values and what
    /// attention gives, later the inner columns. Behind them biases, and gamma and beta of both norms.
    static constexpr int kQkv = kRows * kQkvPitch, kRest = kRows * kWidth, kElements = 3 * kRest + kQkv;
    static constexpr int kVectors = kOtherVectors + kInner / kWidth;
    static_assert(kInner <= kQkvPitch + kWidth);
    static constexpr std::size_t kBytes = sizeof(bf16) * kElements + sizeof(float) * kWidth * kVectors;

    const ForwardArgs& a;
    const Place p;
    const int part;
    const Tile<kWidth> stream, added, attended;
    const Tile<kQkvPitch> qkv;
    const Tile<kInner> inner;
    float* const vector;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

    __device__ Forward(const ForwardArgs& args, const Place& place, int rank, bf16* memory)
        : a(args),
          p(place),
          part(rank),
          stream{memory},
          added{memory + kRest},
          attended{memory + 2 * kRest + kQkv},
          qkv{memory + 2 * kRest},
          inner{memory + 2 * kRest},
          vector(reinterpret_cast<float*>(memory + kElements)) {}

    [[nodiscard]] __device__ const float* vector_of(Vector which) const { return vector + kWidth * which; }
    /// Column c of a block's queries, keys and values in the layer's.
    [[nodiscard]] __device__ int qkv_column(int c) const { return c / kPart * kWidth + part * kPart + c % kPart; }
    [[nodiscard]] __device__ int own_begin() const { return part * kOwnRows; }
    [[nodiscard]] __device__ int own_end() const { return min(own_begin() + kOwnRows, a.positions); }

    /// A warp takes 128 of them at a time.
    __device__ void stage_vectors() {
        const std::uint32_t to = shared_address(vector + 4 * lane);
#pragma unroll 1
        for (int i = warp; i < kVectors; i += kWarps)
            copy16(to + sizeof(float) * kWidth * i, a.vectors[i].row(p.k, p.g, 0) + 4 * lane, true);
    }
    __device__ void stage_x() {
        const Rows<const bf16> from = p.of(a.x);
#pragma unroll 1
        for (int i = threadIdx.x; i < kRows * kWidth / kRun; i += kThreads) {
            const int row = i / (kWidth / kRun), run = i % (kWidth / kRun), there = min(row, a.positions - 1);
            copy16(shared_address(stream.run(row, run)), from[there] + kRun * run, row < a.positions);
        }
    }
    /// Rows [begin, end) of a tile, the first kRuns runs, to global memory; column_of(run): where its columns go.
    template <int kRuns, int kPitch, class ColumnOf>
    __device__ void copy_out(const Tile<kPitch>& from, const Rows<bf16>& to, int begin, int end, ColumnOf column_of) {
#pragma unroll 1
        for (int i = threadIdx.x; i < (end - begin) * kRuns; i += kThreads) {
            const int row = begin + i / kRuns, run = i % kRuns;
            store16(to[row] + column_of(run), from.load(row, run));
        }
    }
    template <class P, class RowOf>
    __device__ void begin(P& product, const Linear& l, RowOf row_of) {
        product.begin(l.w.row(p.k, p.g, 0), l.w.stride_row, row_of);
    }
    /// A pass's first column of this warp: of the block's queries, keys and values, of the inner ones; and the only pass's.
    [[nodiscard]] __device__ int in_column(int pass) const { return (pass * kWarps + warp) * In::kColumns; }
    [[nodiscard]] __device__ auto in_rows(int pass) const {
        return [this, first = in_column(pass)](int strip) { return qkv_column(first + 8 * In::kStrip * strip); };
    }
    [[nodiscard]] __device__ auto widen_rows(int pass) const {
        const int first = part * kInnerPart + (pass * kWarps + warp) * Widen::kColumns;
        return [first](int strip) { return first + 8 * Widen::kStrip * strip; };
    }
    [[nodiscard]] __device__ auto few_rows() const {
        const int first = part * kPart + warp / kRowWarps * Few::kColumns;
        return [first](int strip) { return first + 8 * Few::kStrip * strip; };
    }

    __device__ void project_in(In& product) {
#pragma unroll 1
        for (int pass = 0; pass < kInPasses; ++pass) {
            product.clear(vector_of(in_bias), in_rows(pass));
            product.multiply(stream, 0, 0, kWidth / 32);
            if (pass + 1 < kInPasses) begin(product, a.in, in_rows(pass + 1));
            product.each([&](int row, int strip, int column, const Word<In::kOwn>& word) {
                *reinterpret_cast<Word<In::kOwn>*>(qkv.at(row, in_column(pass) + 8 * In::kStrip * strip + column)) = word;
            });
        }
    }
    __device__ void attend_all(int filled) {
        const int head = kTasks == 1 ? warp / 4 : warp / 2, layer_head = part * (kHeads / kParts) + head;
        const HeadRuns runs{4 * head, kPart / kRun + 4 * head, 2 * kPart / kRun + 4 * head};
#pragma unroll 1
        for (int task = 0; task < kTasks; ++task) {
            // Of two tiles, a warp has a late one and an early one: late queries see most.
            const int tile = kTasks == 1 ? warp % 4 : warp % 2 == 0 ? 3 * task : 1 + task;
            float out[4][4], logsumexp[2];
            attend(qkv, runs, tile, filled, out, logsumexp);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = 16 * tile + 8 * half + lane / 4;
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    *reinterpret_cast<std::uint32_t*>(attended.run(row, 4 * layer_head + n) + 2 * (lane % 4)) =
                        pack2(out[n][2 * half], out[n][2 * half + 1]);
                if (lane % 4 == 0 && row < a.positions) a.logsumexp.row(p.k, p.g, p.row + row)[layer_head] = logsumexp[half];
            }
            if constexpr (kParts > 1) {
                __syncwarp();
#pragma unroll
                for (int i = lane; i < 64; i += 32) {
                    bf16* at = attended.run(16 * tile + i / 4, 4 * layer_head + i % 4);
                    const uint4 v = *reinterpret_cast<const uint4*>(at);
                    for (int other = 1; other < kParts; ++other) put_at((part + other) % kParts, at, v);
                }
            }
        }
    }
    /// `added` of all blocks = product.
    __device__ void add_few(Few& product, const AnyTile& left, int chunks, Vector bias) {
        const int first = warp % kRowWarps * (kRows / kRowWarps);
        product.clear(vector_of(bias), few_rows());
        product.multiply(left, first, 0, chunks);
        product.each([&](int row, int strip, int column, const Word<Few::kOwn>& word) {
            put_everywhere<kParts>(added.at(first + row, few_rows()(strip) + column), word);
        });
    }
    __device__ void widen(Widen& product) {
#pragma unroll 1
        for (int pass = 0; pass < kWidenPasses; ++pass) {
            product.clear(vector_of(widen_bias), widen_rows(pass));
            product.multiply(stream, 0, 0, kWidth / 32);
            if (pass + 1 < kWidenPasses) begin(product, a.widen, widen_rows(pass + 1));
            product.each([&](int row, int strip, int column, const Word<Widen::kOwn>& word) {
                *reinterpret_cast<Word<Widen::kOwn>*>(inner.at(row, widen_rows(pass)(strip) + column)) = word;
            });
        }
    }
    /// The block's inner columns go through the activation.
    __device__ void activate() {
        constexpr int kRuns = kInnerPart / kRun;
        const Rows<bf16> to_u = p.of(a.saved), to_y = p.of(a.widen.y);
        const bool saves = a.saved.data != nullptr;
#pragma unroll 1
        for (int i = threadIdx.x; i < kRows * kRuns; i += kThreads) {
            const int row = i / kRuns, run = part * kRuns + i % kRuns;
            const uint4 u = inner.load(row, run);
            float v[kRun];
            spread(u, v);
#pragma unroll
            for (int n = 0; n < kRun; ++n) v[n] = gelu_rounded(v[n]);
            const uint4 y = packed(v);
            put_everywhere<kParts>(inner.run(row, run), y);
            if (row >= a.positions) continue;
            if (saves) store16(to_u[row] + kRun * run, u);
            store16(to_y[row] + kRun * run, y);
        }
    }
    __device__ void run(In& in, int filled) {
        project_in(in);
        Few few;
        begin(few, a.out, few_rows());
        __syncthreads();
        copy_out<3 * kPart / kRun>(qkv, p.of(a.in.y), 0, a.positions, [&](int run) { return qkv_column(kRun * run); });
        if constexpr (kParts > 1) cluster_wait();  // all blocks have begun
        attend_all(filled);
        meet<kParts>();
        copy_out<kWidth / kRun>(attended, p.of(a.attended), own_begin(), own_end(), [](int run) { return kRun * run; });
        // What follows attention, then what follows the inner columns, by the same code. A block needs all rows of the first
        // norm, of the second its own.
#pragma unroll 1
        for (int second = 0; second < 2; ++second) {
            const int columns = second == 0 ? kWidth : kInner;
            add_few(few, {second == 0 ? attended.data : inner.data, columns}, columns / 32, second == 0 ? out_bias : narrow_bias);
            Widen wide;
            if (second == 0) begin(wide, a.widen, widen_rows(0));
            meet<kParts>();
            normalise_rows<4 * kWarps>(a.norms[second], vector_of(gammas) + kWidth * second, vector_of(betas) + kWidth * second,
                                       p, added, stream, second * own_begin() + 4 * warp,
                                       second == 0 ? kRows : own_begin() + kOwnRows, own_begin(), own_end());
            if (second == 1) return;
            __syncthreads();
            widen(wide);
            begin(few, a.narrow, few_rows());
            __syncthreads();
            activate();
            meet<kParts>();
        }
    }
};

template <int kParts, int kWarps, int kInner>
__global__ void __launch_bounds__(32 * kWarps, 2) layer_forward_kernel(const __grid_constant__ ForwardArgs a) {
    extern __shared__ uint4 memory[];
    const int matrix = static_cast<int>(blockIdx.z) / kParts, part = static_cast<int>(blockIdx.z) % kParts;
    const Place p{matrix / a.groups, matrix % a.groups, static_cast<int>(blockIdx.x) * a.positions};
    Forward<kParts, kWarps, kInner> block(a, p, part, reinterpret_cast<bf16*>(memory));
    typename Forward<kParts, kWarps, kInner>::In in;
    const auto fetch_parameters = [&] {
        block.stage_vectors();
        block.begin(in, a.in, block.in_rows(0));
    };
    if constexpr (kParts > 1) cluster_arrive();
    int length = 0;
#pragma unroll 1
    for (int begun = 0; begun < 2; ++begun) {
        if (begun == 1) {
            begin_kernel();
            length = __ldcg(a.lengths.row(p.k, p.g, static_cast<int>(blockIdx.x)));
            block.stage_x();
        }
        if (a.early == (begun == 0)) fetch_parameters();
    }
    commit_copies();
    await_copies<0>();
    __syncthreads();
    block.run(in, min(max(length, 0), a.positions));
}

/// How many blocks share a sequence: all multiprocessors should have something to do.
int parts_for(const Context& c, const Operand& y, int sequences) {
    const std::int64_t all = std::int64_t{y.k} * y.g * sequences;
    return dependent_launches() && 2 * all <= c.multiprocessors && std::int64_t{y.k} * y.g * 4 <= 65535 ? 4 : 1;
}

template <int kParts, int kWarps, int kInner>
KernelResult make_forward(Context& c, const ForwardArgs& a, int matrices, int sequences) {
    using Block = Forward<kParts, kWarps, kInner>;
    const auto kernel = layer_forward_kernel<kParts, kWarps, kInner>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(static_cast<unsigned>(sequences), 1, static_cast<unsigned>(matrices * kParts));
    return make_kernel(
        [=, stream = c.stream] { launch_clusters(kernel, grid, dim3(Block::kThreads), kParts, Block::kBytes, stream, a); });
}

Linear linear_of(const Bound& b) { return {b[dense_forward::w], b[dense_forward::y]}; }
NormArgs norm_of(const Bound& b) {
    using namespace layernorm_forward;
    return {b[x], b[mean], b[inv_std], b[sum], b[y], b.params<LayerNormParams>().eps};
}
void set_vectors(ForwardArgs& a, Vector first, const Operand& from) {
    for (int i = 0; i < from.cols / kWidth; ++i) {
        Matrices<const float> part(from);
        part.data += i * kWidth;
        a.vectors[first + i] = part;
    }
}
/// Groups that a record has as members.
template <class T>
Matrices<T> grouped(const Operand& o, int groups) {
    Matrices<T> m(o);
    if (groups > 1) m.stride_g = std::exchange(m.stride_k, 0);
    return m;
}

}  // namespace
}  // namespace sequence

std::size_t match_sequence_forward(const Context& c, std::span<const Bound> records) {
    const bool takes = is_sequence_layer(records) && sequence::Forward<1, 8, 256>::kBytes <= c.shared_limit;
    return takes ? SequenceLayer::kRecords : 0;
}

KernelResult make_sequence_forward(Context& c, std::span<const Bound> records) {
    using namespace sequence;
    const SequenceLayer r(records);
    const Bound& attention = r.attention;
    const Operand &x = r.in[dense_forward::x], &lengths = attention[attention_forward::lengths],
                  &inner = r.widen[dense_forward::y];
    ForwardArgs a{x,
                  linear_of(r.in),
                  linear_of(r.out),
                  linear_of(r.widen),
                  linear_of(r.narrow),
                  r.out[dense_forward::x],
                  r.widen[dense_forward::saved],
                  grouped<const std::int32_t>(lengths, x.g),
                  grouped<float>(attention[attention_forward::logsumexp], x.g),
                  {norm_of(r.norm1), norm_of(r.norm2)},
                  {},
                  x.g,
                  positions_of(x, lengths),
                  c.early};
    set_vectors(a, in_bias, r.in[dense_forward::bias]);
    set_vectors(a, out_bias, r.out[dense_forward::bias]);
    set_vectors(a, narrow_bias, r.narrow[dense_forward::bias]);
    set_vectors(a, gammas, r.norm1[layernorm_forward::gamma]);
    set_vectors(a, static_cast<Vector>(gammas + 1), r.norm2[layernorm_forward::gamma]);
    set_vectors(a, betas, r.norm1[layernorm_forward::beta]);
    set_vectors(a, static_cast<Vector>(betas + 1), r.norm2[layernorm_forward::beta]);
    set_vectors(a, widen_bias, r.widen[dense_forward::bias]);
    const int matrices = x.k * x.g, parts = parts_for(c, x, lengths.rows);
    if (inner.cols == 128)
        return parts == 1 ? make_forward<1, 8, 128>(c, a, matrices, lengths.rows)
                          : make_forward<4, 4, 128>(c, a, matrices, lengths.rows);
    return parts == 1 ? make_forward<1, 8, 256>(c, a, matrices, lengths.rows)
                      : make_forward<4, 4, 256>(c, a, matrices, lengths.rows);
}

}  // namespace millrace::ops::cuda
