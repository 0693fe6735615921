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
    Mat<const bf16> w;
    Mat<const float> bias;
    Mat<bf16> y;
};

struct ForwardArgs {
    Mat<const bf16> x;
    Linear in, out, widen, narrow;
    Mat<bf16> attended, saved;  ///< saved: before the activation, may be absent
    Mat<const std::int32_t> lengths;
    Mat<float> logsumexp;
    NormArgs norm1, norm2;
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
    using Widen = Product<kRows / 16, std::min(2, kInnerPart / kWarps / 8), 4>;
    template <int kStages>
    using Few = Product<kRows / kRowWarps / 16, kPart * kRowWarps / kWarps / 8, kStages>;
    using Out = Few<4>;
    using Narrow = Few<kParts == 1 ? 4 : kInner / 32>;
    static constexpr int kInPasses = 3 * kPart / kWarps / In::kColumns, kWidenPasses = kInnerPart / kWarps / Widen::kColumns;
    static_assert(kInPasses * kWarps * In::kColumns == 3 * kPart && kWidenPasses * kWarps * Widen::kColumns == kInnerPart);
    static_assert(kPart % (8 * In::kStrip) == 0);                // a strip is of queries, keys or values alone
    static constexpr int kTasks = kHeads / kParts * 4 / kWarps;  ///< tiles of queries that a warp takes
    /// Elements of shared memory: rows of the residual stream; what is added to them; queries, keys and values and what
    /// attention gives, later the inner columns. Behind them biases, and gamma and beta of both norms.
    static constexpr int kQkv = kRows * kQkvPitch, kRest = kRows * kWidth, kElements = 3 * kRest + kQkv;
    static constexpr int kVectors[] = {3 * kWidth, kWidth, kInner, kWidth, kWidth, kWidth, kWidth, kWidth};
    enum Vector { in_bias, out_bias, widen_bias, narrow_bias, gamma1, beta1, gamma2, beta2, vectors };
    static_assert(kInner <= kQkvPitch + kWidth);
    static constexpr int first_of(int vector) { return vector == 0 ? 0 : first_of(vector - 1) + kVectors[vector - 1]; }
    static constexpr std::size_t kBytes = sizeof(bf16) * kElements + sizeof(float) * first_of(vectors);

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

    /// Column c of a block's queries, keys and values in the layer's.
    [[nodiscard]] __device__ int qkv_column(int c) const { return c / kPart * kWidth + part * kPart + c % kPart; }
    [[nodiscard]] __device__ int own_begin() const { return part * kOwnRows; }
    [[nodiscard]] __device__ int own_end() const { return min(own_begin() + kOwnRows, a.positions); }

    template <int kVector>
    __device__ void stage_vector(const Mat<const float>& from) {
        const std::uint32_t to = shared_address(vector + first_of(kVector));
        for (int i = threadIdx.x; i < kVectors[kVector] / 4; i += kThreads)
            copy16(to + 16 * i, from.row(p.k, p.g, 0) + 4 * i, true);
    }
    __device__ void stage_vectors() {
        stage_vector<in_bias>(a.in.bias);
        stage_vector<out_bias>(a.out.bias);
        stage_vector<widen_bias>(a.widen.bias);
        stage_vector<narrow_bias>(a.narrow.bias);
        stage_vector<gamma1>(a.norm1.gamma);
        stage_vector<beta1>(a.norm1.beta);
        stage_vector<gamma2>(a.norm2.gamma);
        stage_vector<beta2>(a.norm2.beta);
    }
    __device__ void stage_x() {
        for (int i = threadIdx.x; i < kRows * kWidth / kRun; i += kThreads) {
            const int row = i / (kWidth / kRun), run = i % (kWidth / kRun), there = min(row, a.positions - 1);
            copy16(shared_address(stream.run(row, run)), a.x.row(p.k, p.g, p.row + there) + kRun * run, row < a.positions);
        }
    }
    /// Rows [begin, end) of a tile, the first kRuns runs, to global memory; column_of(run): where its columns go.
    template <int kRuns, int kPitch, class ColumnOf>
    __device__ void copy_out(const Tile<kPitch>& from, const Mat<bf16>& to, int begin, int end, ColumnOf column_of) {
#pragma unroll 2
        for (int i = threadIdx.x; i < (end - begin) * kRuns; i += kThreads) {
            const int row = begin + i / kRuns, run = i % kRuns;
            *reinterpret_cast<uint4*>(to.row(p.k, p.g, p.row + row) + column_of(run)) = from.load(row, run);
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
        const int first = part * kPart + warp / kRowWarps * Out::kColumns;
        return [first](int strip) { return first + 8 * Out::kStrip * strip; };
    }

    __device__ void project_in(In& product) {
#pragma unroll
        for (int pass = 0; pass < kInPasses; ++pass) {
            product.clear(vector + first_of(in_bias), in_rows(pass));
            product.template multiply<kWidth / 32>(stream, 0, 0);
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
    /// `added` = product: in all blocks, or only where a row belongs.
    template <bool kEverywhere, int kChunks, class P, int kPitch>
    __device__ void add_few(P& product, const Tile<kPitch>& left, const float* bias) {
        const int first = warp % kRowWarps * (kRows / kRowWarps);
        product.clear(bias, few_rows());
        product.template multiply<kChunks>(left, first, 0);
        product.each([&](int row, int strip, int column, const Word<P::kOwn>& word) {
            row += first;
            bf16* at = added.at(row, few_rows()(strip) + column);
            if constexpr (kEverywhere || kParts == 1)
                put_everywhere<kParts>(at, word);
            else
                put_at(row / kOwnRows, at, word);
        });
    }
    __device__ void widen(Widen& product) {
#pragma unroll
        for (int pass = 0; pass < kWidenPasses; ++pass) {
            product.clear(vector + first_of(widen_bias), widen_rows(pass));
            product.template multiply<kWidth / 32>(stream, 0, 0);
            if (pass + 1 < kWidenPasses) begin(product, a.widen, widen_rows(pass + 1));
            product.each([&](int row, int strip, int column, const Word<Widen::kOwn>& word) {
                *reinterpret_cast<Word<Widen::kOwn>*>(inner.at(row, widen_rows(pass)(strip) + column)) = word;
            });
        }
    }
    /// The block's inner columns go through the activation.
    __device__ void activate() {
        constexpr int kRuns = kInnerPart / kRun;
#pragma unroll 2
        for (int i = threadIdx.x; i < kRows * kRuns; i += kThreads) {
            const int row = i / kRuns, run = part * kRuns + i % kRuns;
            const std::int64_t to = p.row + row;
            const uint4 u = inner.load(row, run);
            float v[kRun];
            spread(u, v);
#pragma unroll
            for (int n = 0; n < kRun; ++n) v[n] = gelu_rounded(v[n]);
            const uint4 y = packed(v);
            put_everywhere<kParts>(inner.run(row, run), y);
            if (row >= a.positions) continue;
            if (a.saved) *reinterpret_cast<uint4*>(a.saved.row(p.k, p.g, to) + kRun * run) = u;
            *reinterpret_cast<uint4*>(a.widen.y.row(p.k, p.g, to) + kRun * run) = y;
        }
    }
    /// Norm of rows [begin, end), of which this block's go to global memory.
    template <bool kKeep>
    __device__ void normalise(const NormArgs& n, Vector gamma, Vector beta, const Mat<bf16>& to_x, int begin, int end) {
#pragma unroll(kParts == 1 ? 1 : 2)
        for (int row = begin + 4 * warp; row < end; row += 4 * kWarps)
            normalise_rows<kKeep>(n, vector + first_of(gamma), vector + first_of(beta), to_x, p, added, stream, row, own_begin(),
                                  own_end());
    }
    __device__ void run(In& in, int filled) {
        project_in(in);
        Out out;
        begin(out, a.out, few_rows());
        __syncthreads();
        copy_out<3 * kPart / kRun>(qkv, a.in.y, 0, a.positions, [&](int run) { return qkv_column(kRun * run); });
        if constexpr (kParts > 1) cluster_wait();  // all blocks have begun
        attend_all(filled);
        meet<kParts>();
        copy_out<kWidth / kRun>(attended, a.attended, own_begin(), own_end(), [](int run) { return kRun * run; });
        add_few<true, kWidth / 32>(out, attended, vector + first_of(out_bias));
        Widen wide;
        begin(wide, a.widen, widen_rows(0));
        meet<kParts>();
        normalise<true>(a.norm1, gamma1, beta1, a.out.y, 0, kRows);
        __syncthreads();
        widen(wide);
        Narrow narrow;
        begin(narrow, a.narrow, few_rows());
        __syncthreads();
        activate();
        meet<kParts>();
        add_few<false, kInner / 32>(narrow, inner, vector + first_of(narrow_bias));
        meet<kParts>();
        normalise<false>(a.norm2, gamma2, beta2, a.narrow.y, own_begin(), own_begin() + kOwnRows);
    }
};

template <int kParts, int kWarps, int kInner>
__global__ void __launch_bounds__(32 * kWarps, 2) layer_forward_kernel(const __grid_constant__ ForwardArgs a) {
    extern __shared__ uint4 memory[];
    const int matrix = static_cast<int>(blockIdx.z) / kParts, part = static_cast<int>(blockIdx.z) % kParts;
    const Place p{matrix / a.groups, matrix % a.groups, std::int64_t{blockIdx.x} * a.positions};
    Forward<kParts, kWarps, kInner> block(a, p, part, reinterpret_cast<bf16*>(memory));
    typename Forward<kParts, kWarps, kInner>::In in;
    const auto fetch_parameters = [&] {
        block.stage_vectors();
        block.begin(in, a.in, block.in_rows(0));
    };
    if constexpr (kParts > 1) cluster_arrive();
    if (a.early) fetch_parameters();
    begin_kernel();
    const int length = __ldcg(a.lengths.row(p.k, p.g, blockIdx.x));
    block.stage_x();
    if (!a.early) fetch_parameters();
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

Linear linear_of(const Bound& b) { return {b[dense_forward::w], b[dense_forward::bias], b[dense_forward::y]}; }
NormArgs norm_of(const Bound& b) {
    using namespace layernorm_forward;
    return {b[gamma], b[beta], b[mean], b[inv_std], b[sum], b[y], b.params<LayerNormParams>().eps};
}
/// Groups that a record has as members.
template <class T>
Mat<T> grouped(const Operand& o, int groups) {
    Mat<T> m(o);
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
    const ForwardArgs a{x,
                        linear_of(r.in),
                        linear_of(r.out),
                        linear_of(r.widen),
                        linear_of(r.narrow),
                        r.out[dense_forward::x],
                        r.widen[dense_forward::saved],
                        grouped<const std::int32_t>(lengths, x.g),
                        grouped<float>(attention[attention_forward::logsumexp], x.g),
                        norm_of(r.norm1),
                        norm_of(r.norm2),
                        x.g,
                        positions_of(x, lengths),
                        c.early};
    const int matrices = x.k * x.g, parts = parts_for(c, x, lengths.rows);
    if (inner.cols == 128)
        return parts == 1 ? make_forward<1, 8, 128>(c, a, matrices, lengths.rows)
                          : make_forward<4, 4, 128>(c, a, matrices, lengths.rows);
    return parts == 1 ? make_forward<1, 8, 256>(c, a, matrices, lengths.rows)
                      : make_forward<4, 4, 256>(c, a, matrices, lengths.rows);
}

}  // namespace millrace::ops::cuda
