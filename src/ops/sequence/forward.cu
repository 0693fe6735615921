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
    static constexpr int kFewTiles = kPart * kRowWarps / kWarps / 8;
    static_assert(3 * kPart <= kQkvPitch && kFewTiles >= 1 && kInnerPart % (8 * kWarps) == 0);
    using In = Product<kRows / 16, 3 * kPart / kWarps / 8, 2>;
    using Widen = Product<kRows / 16, kInnerPart / kWarps / 8, 3>;
    using Few = Product<kRows / kRowWarps / 16, kFewTiles, 4>;
    static constexpr int kTasks = kHeads / kParts * 4 / kWarps;  ///< tiles of queries that a warp takes
    /// Elements: rows of the residual stream; queries, keys and values and what attention gives, later the inner columns.
    static constexpr int kQkv = kRows * kQkvPitch, kWide = kQkv + kRows * kWidth;
    static_assert(kInner <= kQkvPitch + kWidth);
    static constexpr std::size_t kBytes = sizeof(bf16) * (kRows * kWidth + kWide);

    const ForwardArgs& a;
    const Place p;
    const int part, filled;
    const Tile<kWidth> stream, attended;
    const Tile<kQkvPitch> qkv;
    const Tile<kInner> inner;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

    /// Column c of a block's queries, keys and values in the layer's.
    [[nodiscard]] __device__ int qkv_column(int c) const { return c / kPart * kWidth + part * kPart + c % kPart; }
    [[nodiscard]] __device__ int few_column() const { return part * kPart + warp / kRowWarps * 8 * kFewTiles; }
    [[nodiscard]] __device__ int few_row() const { return warp % kRowWarps * (kRows / kRowWarps); }
    [[nodiscard]] __device__ int own_begin() const { return part * kOwnRows; }
    [[nodiscard]] __device__ int own_end() const { return min(own_begin() + kOwnRows, a.positions); }

    __device__ void stage_x() {
        for (int i = threadIdx.x; i < kRows * kWidth / kRun; i += kThreads) {
            const int row = i / (kWidth / kRun), run = i % (kWidth / kRun), there = min(row, a.positions - 1);
            copy16(shared_address(stream.run(row, run)), a.x.row(p.k, p.g, p.row + there) + kRun * run, row < a.positions);
        }
        commit_copies();
    }
    /// Rows [begin, end) of a tile, runs [0, runs), to global memory; column_of: where a run's columns go.
    template <int kRuns, int kPitch, class ColumnOf>
    __device__ void copy_out(const Tile<kPitch>& from, const Mat<bf16>& to, int begin, int end, ColumnOf column_of) {
        for (int i = threadIdx.x; i < (end - begin) * kRuns; i += kThreads) {
            const int row = begin + i / kRuns, run = i % kRuns;
            *reinterpret_cast<uint4*>(to.row(p.k, p.g, p.row + row) + column_of(run)) = from.load(row, run);
        }
    }
    template <class P>
    __device__ void begin_product(P& product, const Linear& l, int column) {
        product.begin(l.w.row(p.k, p.g, 0), l.w.stride_row, l.bias.row(p.k, p.g, 0),
                      [=](int strip) { return column + 8 * P::kStrip * strip; });
    }
    __device__ void begin_in(In& product) {
        static_assert(kPart % (8 * In::kStrip) == 0);  // a strip is of queries, keys or values alone
        const int first = warp * (3 * kPart / kWarps);
        product.begin(a.in.w.row(p.k, p.g, 0), a.in.w.stride_row, a.in.bias.row(p.k, p.g, 0),
                      [&](int strip) { return qkv_column(first + 8 * In::kStrip * strip); });
    }
    __device__ void project_in(In& product) {
        product.template multiply<kWidth / 32>(stream, 0, 0);
        const int first = warp * (3 * kPart / kWarps);
        product.each([&](int row, int strip, int column, const float(&v)[In::kOwn]) {
            *reinterpret_cast<Word<In::kOwn>*>(qkv.at(row, first + 8 * In::kStrip * strip + column)) = packed(v);
        });
    }
    __device__ void attend_all() {
        const int head = kTasks == 1 ? warp / 4 : warp / 2;
        const HeadRuns runs{4 * head, kPart / kRun + 4 * head, 2 * kPart / kRun + 4 * head};
        const int first_run = 4 * (part * (kHeads / kParts) + head);
#pragma unroll
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
                    *reinterpret_cast<std::uint32_t*>(attended.run(row, first_run + n) + 2 * (lane % 4)) =
                        pack2(out[n][2 * half], out[n][2 * half + 1]);
                if (lane % 4 == 0 && row < a.positions)
                    a.logsumexp.row(p.k, p.g, p.row + row)[part * (kHeads / kParts) + head] = logsumexp[half];
            }
            if constexpr (kParts > 1) {
                __syncwarp();
#pragma unroll
                for (int i = lane; i < 64; i += 32) {
                    bf16* at = attended.run(16 * tile + i / 4, first_run + i % 4);
                    const uint4 v = *reinterpret_cast<const uint4*>(at);
                    for (int other = 1; other < kParts; ++other) put_at((part + other) % kParts, at, v);
                }
            }
        }
    }
    /// y = product; rows of the stream become what is there plus y. kEverywhere: in all blocks, else where a row belongs.
    template <bool kEverywhere, int kChunks, int kPitch>
    __device__ void add_few(Few& product, const Tile<kPitch>& left, const Linear& l) {
        product.template multiply<kChunks>(left, few_row(), 0);
        product.each([&](int row, int strip, int column, const float(&v)[Few::kOwn]) {
            row += few_row();
            column += few_column() + 8 * Few::kStrip * strip;
            using W = Word<Few::kOwn>;
            const W y = packed(v);
            if (row < a.positions) *reinterpret_cast<W*>(l.y.row(p.k, p.g, p.row + row) + column) = y;
            bf16* at = stream.at(row, column);
            float rounded_y[Few::kOwn], sum[Few::kOwn];
            unpack(y, rounded_y);
            unpack(*reinterpret_cast<const W*>(at), sum);
#pragma unroll
            for (int i = 0; i < Few::kOwn; ++i) sum[i] += rounded_y[i];
            if constexpr (kEverywhere || kParts == 1)
                put_everywhere<kParts>(at, packed(sum));
            else
                put_at(row / kOwnRows, at, packed(sum));
        });
    }
    __device__ void widen(Widen& product) {
        product.template multiply<kWidth / 32>(stream, 0, 0);
        const int first = part * kInnerPart + warp * (kInnerPart / kWarps);
        product.each([&](int row, int strip, int column, float(&v)[Widen::kOwn]) {
            column += first + 8 * Widen::kStrip * strip;
            if (a.saved) {
                const auto u = packed(v);
                if (row < a.positions) *reinterpret_cast<Word<Widen::kOwn>*>(a.saved.row(p.k, p.g, p.row + row) + column) = u;
                unpack(u, v);
            }
#pragma unroll
            for (int i = 0; i < Widen::kOwn; ++i) {
                float slope;
                gelu_and_slope(v[i], v[i], slope);
            }
            put_everywhere<kParts>(inner.at(row, column), packed(v));
        });
    }
    /// Norm of rows [begin, end), of which this block's go to global memory.
    template <bool kKeep>
    __device__ void normalise(const NormArgs& n, const NormColumns& columns, int begin, int end) {
        for (int row = begin + 4 * warp; row < end; row += 4 * kWarps)
            normalise_rows<kKeep>(n, columns, p, stream, row, own_begin(), own_end());
    }
    __device__ void run(In& in) {
        project_in(in);
        Few out;
        begin_product(out, a.out, few_column());
        __syncthreads();
        copy_out<3 * kPart / kRun>(qkv, a.in.y, 0, a.positions, [&](int run) { return qkv_column(kRun * run); });
        if constexpr (kParts > 1) cluster_wait();  // all blocks have begun
        attend_all();
        meet<kParts>();
        copy_out<kWidth / kRun>(attended, a.attended, own_begin(), own_end(), [](int run) { return kRun * run; });
        add_few<true, kWidth / 32>(out, attended, a.out);
        Widen wide;
        begin_product(wide, a.widen, part * kInnerPart + warp * (kInnerPart / kWarps));
        NormColumns columns;
        columns.load(a.norm1, p);
        meet<kParts>();
        normalise<true>(a.norm1, columns, 0, kRows);
        __syncthreads();
        widen(wide);
        Few narrow;
        begin_product(narrow, a.narrow, few_column());
        meet<kParts>();
        copy_out<kInner / kRun>(inner, a.widen.y, own_begin(), own_end(), [](int run) { return kRun * run; });
        add_few<false, kInner / 32>(narrow, inner, a.narrow);
        columns.load(a.norm2, p);
        meet<kParts>();
        normalise<false>(a.norm2, columns, own_begin(), own_begin() + kOwnRows);
    }
};

template <int kParts, int kWarps, int kInner>
__global__ void __launch_bounds__(32 * kWarps) layer_forward_kernel(const __grid_constant__ ForwardArgs a) {
    using Block = Forward<kParts, kWarps, kInner>;
    extern __shared__ uint4 memory[];
    const int matrix = static_cast<int>(blockIdx.z) / kParts, part = static_cast<int>(blockIdx.z) % kParts;
    const Place p{matrix / a.groups, matrix % a.groups, std::int64_t{blockIdx.x} * a.positions};
    bf16 *stream = reinterpret_cast<bf16*>(memory), *wide = stream + kRows * kWidth;
    typename Block::In in;
    if constexpr (kParts > 1) cluster_arrive();
    const auto block = [&](int filled) { return Block{a, p, part, filled, {stream}, {wide + Block::kQkv}, {wide}, {wide}}; };
    if (a.early) block(0).begin_in(in);
    begin_kernel();
    const int length = __ldcg(a.lengths.row(p.k, p.g, blockIdx.x));
    Block here = block(min(max(length, 0), a.positions));
    here.stage_x();
    if (!a.early) here.begin_in(in);
    await_copies<0>();
    __syncthreads();
    here.run(in);
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

bool is_linear(const Bound& b, const Operand& x, int inputs, int outputs, Activation activation) {
    namespace at = dense_forward;
    if (b.record->op != &at::kDef) return false;
    const auto& p = b.params<DenseParams>();
    const Operand &w = b[at::w], &bias = b[at::bias], &y = b[at::y];
    const auto fits = [&](const Operand& o, int rows, int cols) {
        return o.dtype == tensor::DType::bf16 && o.k == x.k && o.g == x.g && o.rows == rows && o.cols == cols && whole_runs(o);
    };
    return p.norm == Norm::none && p.dropout == 0 && p.activation == activation && same_place(b[at::x], x) &&
           fits(x, x.rows, inputs) && fits(w, outputs, inputs) && fits(y, x.rows, outputs) && bias.present() &&
           whole_runs(bias) &&
           (b[at::saved].present() ? activation != Activation::none && fits(b[at::saved], x.rows, outputs) : true);
}

bool is_norm(const Bound& b, const Operand& x, const Operand& residual) {
    namespace at = layernorm_forward;
    if (b.record->op != &at::kDef) return false;
    return same_place(b[at::x], x) && same_place(b[at::residual], residual) && whole_runs(b[at::gamma]) &&
           whole_runs(b[at::beta]) && whole_runs(b[at::sum]) && whole_runs(b[at::y]) && b[at::mean].present() &&
           b[at::inv_std].present();
}

bool is_attention(const Bound& b, const Operand& qkv) {
    namespace at = attention_forward;
    if (b.record->op != &at::kDef) return false;
    const auto& p = b.params<AttentionParams>();
    const Operand &lengths = b[at::lengths], &out = b[at::out];
    const int positions = positions_of(qkv, lengths);
    return p.heads == kHeads && p.prefix == 0 && p.causal && positions >= 1 && positions <= kRows &&
           positions * lengths.rows == qkv.rows && (qkv.k == 1 || qkv.g == 1) && same_memory(qkv, b[at::qkv]) &&
           lengths.k == out.k && out.cols == kWidth && b[at::logsumexp].present();
}

}  // namespace
}  // namespace sequence

std::size_t match_sequence_forward(const Context& c, std::span<const Bound> records) {
    using namespace sequence;
    namespace dense = dense_forward;
    if (records.size() < kForwardRecords || records[1].record->op != &attention_forward::kDef ||
        c.shared_limit < Forward<1, 8, 256>::kBytes)
        return 0;
    const ForwardRecords r = forward_records(records);
    const Operand &x = r.in[dense::x], &seen = r.out[dense::x];
    if (!is_linear(r.in, x, kWidth, 3 * kWidth, Activation::none) || !is_attention(r.attention, r.in[dense::y]) ||
        !same_memory(seen, r.attention[attention_forward::out]) || !is_linear(r.out, seen, kWidth, kWidth, Activation::none) ||
        !is_norm(r.norm1, r.out[dense::y], x))
        return 0;
    const Operand &h = r.norm1[layernorm_forward::y], &inner = r.widen[dense::y];
    if (inner.cols != 128 && inner.cols != 256) return 0;
    if (!is_linear(r.widen, h, kWidth, inner.cols, Activation::gelu) ||
        !is_linear(r.narrow, inner, inner.cols, kWidth, Activation::none) || !is_norm(r.norm2, r.narrow[dense::y], h))
        return 0;
    return kForwardRecords;
}

KernelResult make_sequence_forward(Context& c, std::span<const Bound> records) {
    using namespace sequence;
    const ForwardRecords r = forward_records(records);
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
