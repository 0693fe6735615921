#pragma once
// The forward pass of a layer over short sequences, by one block or by a cluster of four. Each block of a cluster takes one head
// and a quarter of the columns of every product, and a quarter of the rows of every norm; the blocks exchange rows through shared
// memory. Between the products the rows stay there; what later records read goes to global memory on the way, rounded where the
// separate kernels round. Sums run in the same order either way.

#include "ops/sequence/forward_parts.cuh"

namespace millrace::ops::cuda::sequence {

/// One block of a layer over one sequence: kParts blocks share it, kInner columns between the two linear layers; with kDrops
/// dropout in front of the residuals.
template <class T, int kParts, int kInner, bool kDrops>
struct Forward {
    static constexpr int kWarps = 8, kThreads = 32 * kWarps, kOwnRows = kRows / kParts;
    static constexpr int kPart = kWidth / kParts, kInnerPart = kInner / kParts;  ///< columns of a block
    /// Columns of the tile that holds queries, keys and values, later the inner columns. What attention gives replaces the
    /// queries, or stands behind the values where another warp may still copy them.
    static constexpr int kPitch = kParts == 1 ? 3 * kWidth : 2 * kWidth, kAttended = kParts == 1 ? 0 : kWidth;
    /// What is added to the block's own rows: alone in place of the values.
    static constexpr int kAddedPitch = kParts == 1 ? kPitch : kWidth;
    // Alone, a block reads each weight once: a warp has all rows, in passes of few columns, so that registers suffice for two
    // blocks. With a quarter of the columns its warps share the rows too, and all its weights fit into shared memory.
    static constexpr int kInRowWarps = kParts == 1 ? 1 : 2, kRowWarps = kParts;
    static constexpr int kInTiles = 3, kWidenTiles = kInnerPart * kRowWarps / kWarps / 8,
                         kFewTiles = kPart * kRowWarps / kWarps / 8;
    using In = Product<T, kRows / 16 / kInRowWarps, kInTiles>;
    using Widen = Product<T, kRows / 16 / kRowWarps, kWidenTiles>;
    using Few = Product<T, kRows / 16 / kRowWarps, kFewTiles>;
    static constexpr int kInColumns = kWarps / kInRowWarps * In::kCount, kInPasses = 3 * kPart / kInColumns;  ///< of a pass
    static_assert(kInPasses * kInColumns == 3 * kPart && kInner <= 2 * kWidth);
    template <int kTiles, int kAll>
    using Weights = std::conditional_t<kParts == 1, Ring<T, kTiles, kTiles == 2 ? 4 : 2>, Resident<kAll>>;
    using InWeights = Weights<kInTiles, 3 * kPart / 8>;
    using WidenWeights = Weights<kWidenTiles, kInnerPart / 8>;
    using FewWeights = Weights<kFewTiles, kPart / 8>;
    /// Bytes of shared memory: rows of the residual stream, the tile, own rows of what is added, biases with gamma and beta of
    /// both norms, weights. In a cluster those of the last product take the place of the first one's, so that a multiprocessor
    /// has room for a block of the next kernel.
    static constexpr int kVectors = kOtherVectors + kInner / kWidth, kRingBytes = 8 * kTileBytes;
    static constexpr int kTile = 2 * kRows * kWidth, kAdded = kTile + (kParts == 1 ? 2 * 2 * kWidth : 2 * kRows * kPitch);
    static constexpr int kVector = kTile + 2 * kRows * kPitch + (kParts == 1 ? 0 : 2 * kOwnRows * kWidth);
    static constexpr int kWeights = kVector + 4 * kWidth * kVectors, kOutWeights = 2 * 3 * kPart * kWidth,
                         kWidenWeights = kOutWeights + 2 * kPart * kWidth, kNarrowWeights = 0;
    static constexpr int kTable = kWeights + (kParts == 1 ? kWarps * kRingBytes : kWidenWeights + 2 * kInnerPart * kWidth);
    static constexpr int kState = kTable + static_cast<int>(sizeof(Rows<char>)) * kOperands;
    static constexpr std::size_t kBytes = kState + (kDrops ? sizeof(MemberState) : 0);
    static_assert(2 * kPart * kInner <= kOutWeights);

    const ForwardArgs& a;
    const Place p;
    const int part;
    const Tile<T, kWidth> stream;
    const Tile<T, kPitch> tile;
    const Tile<T, kAddedPitch> added;
    float* const vector;
    const std::uint32_t weights;
    Rows<char>* const table;  ///< of the operands, data to be cast
    MemberState* const state;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

    __device__ Forward(const ForwardArgs& args, const Place& place, int rank, unsigned char* memory)
        : a(args),
          p(place),
          part(rank),
          stream{reinterpret_cast<T*>(memory)},
          tile{reinterpret_cast<T*>(memory + kTile)},
          added{reinterpret_cast<T*>(memory + kAdded)},
          vector(reinterpret_cast<float*>(memory + kVector)),
          weights(shared_address(memory + kWeights)),
          table(reinterpret_cast<Rows<char>*>(memory + kTable)),
          state(reinterpret_cast<MemberState*>(memory + kState)) {}

    [[nodiscard]] __device__ const float* vector_of(Vector which) const { return vector + kWidth * which; }
    /// Column c of a block's queries, keys and values in the layer's.
    [[nodiscard]] __device__ int qkv_column(int c) const { return c / kPart * kWidth + part * kPart + c % kPart; }
    /// First columns of this warp, in the layer's.
    [[nodiscard]] __device__ int in_first(int pass) const { return pass * kInColumns + warp / kInRowWarps * In::kCount; }
    [[nodiscard]] __device__ int widen_first() const { return part * kInnerPart + warp / kRowWarps * Widen::kCount; }
    [[nodiscard]] __device__ int few_first() const { return part * kPart + warp / kRowWarps * Few::kCount; }

    template <class Real = T>
    [[nodiscard]] __device__ Rows<Real> rows_of(int operand) const {
        const Rows<char> rows = table[operand];
        return {reinterpret_cast<Real*>(rows.data), rows.stride};
    }
    __device__ void fill_table() {
        if (thread >= kOperands) return;
        const OperandArgs& o = a.operands[thread];
        const std::int64_t begin = o.where.row(p.k, p.g, thread < layer_in ? 0 : p.row) - o.where.data;
        table[thread] = {o.where.data + begin * o.bytes, o.where.stride_row};
    }
    /// A warp takes 128 of them at a time.
    __device__ void stage_vectors() {
        const std::uint32_t to = shared_address(vector + 4 * lane);
#pragma unroll 1
        for (int i = warp; i < kVectors; i += kWarps) copy16(to + 4 * kWidth * i, a.vectors[i].row(p.k, p.g, 0) + 4 * lane, true);
    }
    __device__ void stage_x() {
        const Rows<const T> from = rows_of<const T>(layer_in);
        const int row = thread / 16, run = thread % 16;
        const std::uint32_t to = shared_address(stream.run(row, run));
#pragma unroll
        for (int i = 0; i < kRows; i += kThreads / 16)
            copy16(to + 2 * kWidth * i, from[min(row + i, a.positions - 1)] + kRun * run, row + i < a.positions);
    }
    /// All weights of a linear layer that the block needs, kTiles of columns in products of kN; column_of(tile): where its strip
    /// begins in w. A warp takes every other tile of a chunk, so that they lie at fixed distances.
    template <int kN, int kTiles, int kChunks, class ColumnOf>
    __device__ void stage_weights(const Rows<const T>& w, int offset, ColumnOf column_of) {
        const auto row_of = [&](int t, int n) { return column_of(t) + Columns<kN>::in_strip(t, n); };
        const int odd = warp / 4, chunk = warp % 4;
        const T* from = w[row_of(odd, lane / 4)] + kChunk * chunk + kRun * (lane % 4);
        const std::uint32_t to = weights + offset + kTileBytes * (chunk * kTiles + odd) + weight_offset(lane / 4, lane % 4);
#pragma unroll
        for (int t = 0; t < kTiles; t += 2)
#pragma unroll
            for (int c = 0; c < kChunks; c += 4)
                copy16(to + kTileBytes * (c * kTiles + t), from + (row_of(t, 0) - row_of(0, 0)) * w.stride + kChunk * c, true);
    }
    [[nodiscard]] __device__ auto few_strips() const {
        return [this](int t) { return part * kPart + 8 * (t / Few::kStrip * Few::kStrip); };
    }
    /// Weights from row `first` on: alone through the warp's ring, else from `tile` tiles behind `offset` on.
    template <class W>
    __device__ void begin(W& w, Operands which, int first, int offset, int tile) {
        if constexpr (kParts == 1)
            w.begin(weights + warp * kRingBytes, rows_of<const T>(which), first);
        else
            w.memory = weights + offset + tile * kTileBytes;
    }
    __device__ void begin_in(InWeights& w, int pass) { begin(w, in_weights, in_first(pass), 0, in_first(pass) / 8); }
    __device__ void begin_few(FewWeights& w, Operands which, int offset) {
        begin(w, which, few_first(), offset, warp / kRowWarps * kFewTiles);
    }
    /// Parameters: what the first product needs, those in the middle, the last one; a block alone fetches as it goes.
    __device__ void fetch_first(InWeights& w) {
        stage_vectors();
        if constexpr (kParts > 1)
            stage_weights<kInTiles, 3 * kPart / 8, kWidth / kChunk>(rows_of<const T>(in_weights), 0,
                                                                    [&](int t) { return qkv_column(8 * t); });
        begin_in(w, 0);
    }
    __device__ void fetch_middle() {
        if constexpr (kParts > 1) {
            stage_weights<kFewTiles, kPart / 8, kWidth / kChunk>(rows_of<const T>(out_weights), kOutWeights, few_strips());
            stage_weights<kWidenTiles, kInnerPart / 8, kWidth / kChunk>(
                rows_of<const T>(widen_weights), kWidenWeights,
                [&](int t) { return part * kInnerPart + 8 * (t / Widen::kStrip * Widen::kStrip); });
            commit_copies();
        }
    }
    __device__ void fetch_last() {
        if constexpr (kParts > 1) {
            stage_weights<kFewTiles, kPart / 8, kInner / kChunk>(rows_of<const T>(narrow_weights), kNarrowWeights, few_strips());
            commit_copies();
        }
    }

    /// Rows [begin, begin + kCount) of the tile that are before `positions` to global memory, by kCrew threads, of which this one
    /// is `number`: kRuns runs from column `column` on; the same of the kTimes - 1 times kPart columns behind, 128 further on.
    template <int kCrew, int kRuns, int kCount, int kTimes>
    __device__ void copy_out(int number, int column, const Rows<T>& to, int to_column, int begin) {
        constexpr int kStep = kCrew / kRuns;
        static_assert(kStep % 8 == 0 && kCount % kStep == 0);
        const int row = begin + number / kRuns, run = number % kRuns;
        T* const at = to[row] + to_column + kRun * run;
#pragma unroll
        for (int time = 0; time < kTimes; ++time) {
            const T* from = tile.run(row, (column + kPart * time) / kRun + run);
#pragma unroll
            for (int i = 0; i < kCount; i += kStep)
                if (row + i < a.positions)
                    store16(at + i * to.stride + kWidth * time, *reinterpret_cast<const uint4*>(from + kPitch * i));
        }
    }
    __device__ void project_in(InWeights& w) {
        const int row = warp % kInRowWarps * (kRows / kInRowWarps);
        In product;
#pragma unroll 1
        for (int pass = 0; pass < kInPasses; ++pass) {
            const int first = in_first(pass);
            product.clear(vector_of(in_bias), [&](int strip) { return qkv_column(first + 8 * In::kStrip * strip); });
            product.multiply(stream, row, 0, kWidth / kChunk, w);
            if (pass + 1 < kInPasses) begin_in(w, pass + 1);
            product.each([&](int r, int strip, int column, const Word<In::kOwn>& word) {
                *reinterpret_cast<Word<In::kOwn>*>(tile.at(row + r, lane / 4, first + 8 * In::kStrip * strip + column)) = word;
            });
        }
    }
    /// Attention of 16 queries of a head of the block.
    __device__ void attend_tile(int head, int queries, int filled, float (&logsumexp)[2]) {
        const int layer_head = part * (kHeads / kParts) + head;
        float out[4][4];
        attend(tile, {4 * head, kPart / kRun + 4 * head, 2 * kPart / kRun + 4 * head}, queries, filled, out, logsumexp);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < 4; ++n)
                *reinterpret_cast<std::uint32_t*>(
                    tile.at(16 * queries + 8 * half, lane / 4, kAttended + 32 * layer_head + 8 * n + 2 * (lane % 4))) =
                    pack<T>(out[n][2 * half], out[n][2 * half + 1]);
        if constexpr (kParts > 1) {
            __syncwarp();
#pragma unroll
            for (int i = lane; i < 64; i += 32) {
                T* at = tile.run(16 * queries + i / 4, kAttended / kRun + 4 * layer_head + i % 4);
                const uint4 v = *reinterpret_cast<const uint4*>(at);
#pragma unroll
                for (int other = 1; other < kParts; ++other) put_at((part + other) % kParts, at, v);
            }
        }
    }
    __device__ void store_logsumexp(int head, int queries, const float (&logsumexp)[2]) {
        const int row = 16 * queries + lane / 4;
        const Rows<float> to = rows_of<float>(logsumexp_out);
        if (lane % 4 != 0) return;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (row + 8 * half < a.positions) to[row + 8 * half][head] = logsumexp[half];
    }
    /// Writes queries, keys and values; attends to them.
    __device__ void attend_all(int filled) {
        const Rows<T> to = rows_of(qkv_out);
        float logsumexp[2];
        if constexpr (kParts == 1) {
            copy_out<kThreads, kWidth / kRun, kRows, 3>(thread, 0, to, 0, 0);
            __syncthreads();
#pragma unroll 1
            for (int task = 0; task < 2; ++task) {  // a late one and an early one: late queries see most
                const int queries = warp % 2 == 0 ? 3 * task : 1 + task;
                attend_tile(warp / 2, queries, filled, logsumexp);
                store_logsumexp(warp / 2, queries, logsumexp);
            }
            __syncthreads();
        } else {
            cluster_wait();  // all blocks have begun
            if (warp < 4) attend_tile(0, 3 - warp, filled, logsumexp);
            await_copies<1>();
            meet<kParts>([&] {
                if (warp < 4)
                    store_logsumexp(part, 3 - warp, logsumexp);
                else
                    copy_out<kThreads / 2, kPart / kRun, kRows, 3>(thread - kThreads / 2, 0, to, part * kPart, 0);
            });
        }
    }
    __device__ void store_attended() {
        copy_out<kThreads, kWidth / kRun, kOwnRows, 1>(thread, kAttended, rows_of(attended_out), 0, part * kOwnRows);
    }
    /// What dropout leaves of a thread's sums: runs of four columns in every eighth row from `row` on.
    [[nodiscard]] __device__ Kept draw(const Dropout& dropout, int row) const {
        static_assert(Few::kOwn == 4 && Few::kStrips == 1);
        const int runs = min(kRows / kRowWarps / 8, (a.positions - row + 7) / 8);
        const std::uint32_t first = static_cast<std::uint32_t>(p.g) * gridDim.x * a.positions + p.row + row + lane / 4;
        return Mask(dropout, *state).draw(runs, kWidth / 4 * first + few_first() / 4 + lane % 4, 8 * kWidth / 4);
    }
    /// What is added to rows = product; the block that owns them gets it.
    __device__ void add_few(FewWeights& w, int run, int chunks, Vector bias, const Dropout& dropout) {
        const int row = warp % kRowWarps * (kRows / kRowWarps);
        Kept kept;
        if constexpr (kDrops) kept = draw(dropout, row);
        const auto column_of = [&](int strip) { return few_first() + 8 * Few::kStrip * strip; };
        Few product;
        product.clear(vector_of(bias), column_of);
        product.multiply(tile, row, run, chunks, w);
        if constexpr (kDrops) product.drop(kept);
        product.each([&](int r, int strip, int column, const Word<Few::kOwn>& word) {
            T* at = added.at((row + r) % kOwnRows, lane / 4, column_of(strip) + column);
            if constexpr (kParts == 1)
                *reinterpret_cast<Word<Few::kOwn>*>(at) = word;
            else
                put_at(warp % kRowWarps, at, word);
        });
    }
    /// Normalises the block's own rows; what comes of the first norm replaces those of the stream, in all blocks.
    __device__ void norm(int which) {
        constexpr int kLanes = kParts == 1 ? 8 : 16, kStep = kThreads / kLanes;
        const int outputs = norm_out + kNormOutputs * which;
        const NormRows<T> to{rows_of(outputs), rows_of(outputs + 1), rows_of<float>(outputs + 2), rows_of<float>(outputs + 3)};
        float scale[16 / kLanes][kRun], shift[16 / kLanes][kRun];
#pragma unroll
        for (int r = 0; r < 16 / kLanes; ++r) {
            const int column = kRun * (kLanes * r + thread % kLanes) + kWidth * which;
            load_run<kRun>(vector_of(gammas) + column, scale[r]);
            load_run<kRun>(vector_of(betas) + column, shift[r]);
        }
        const int own = thread / kLanes, begin = part * kOwnRows;
        NormRow<T, kLanes> line;
        const auto compute = [&](int row) {  // of the block's own
            line.compute([&](int run) { return added.load(row, run); }, [&](int run) { return stream.load(begin + row, run); },
                         scale, shift, a.eps[which]);
            if (which == 0)
#pragma unroll
                for (int r = 0; r < 16 / kLanes; ++r)
                    put_everywhere<kParts>(stream.run(begin + row, kLanes * r + thread % kLanes), line.y[r]);
        };
        const auto store = [&](int row) {
            if (begin + row < a.positions) line.store(to, begin + row);
        };
        if constexpr (kParts == 1) {
#pragma unroll
            for (int i = 0; i < kOwnRows; i += kStep) {
                compute(own + i);
                store(own + i);
            }
            __syncthreads();
        } else {
            static_assert(kStep == kOwnRows);
            compute(own);
            if (which == 0)
                meet<kParts>([&] { store(own); });
            else
                store(own);
        }
    }
    /// The inner columns, through the activation.
    __device__ void widen(WidenWeights& w, FewWeights& next) {
        using Run = Word<Widen::kOwn>;
        const int first = warp % kRowWarps * (kRows / kRowWarps);
        const auto column_of = [&](int strip) { return widen_first() + 8 * Widen::kStrip * strip; };
        Widen product;
        product.clear(vector_of(widen_bias), column_of);
        product.multiply(stream, first, 0, kWidth / kChunk, w);
        begin_few(next, narrow_weights, kNarrowWeights);
        const bool saves = a.operands[saved_out].where.data != nullptr;
        const Rows<T> to_u = rows_of(saved_out), to_y = rows_of(inner_out);
        const auto store = [&](int row, int column, const Run& u, const Run& y) {
            if (row >= a.positions) return;
            if (saves) __stcg(reinterpret_cast<Run*>(to_u[row] + column), u);
            __stcg(reinterpret_cast<Run*>(to_y[row] + column), y);
        };
        Run kept[kParts == 1 ? 1 : 2 * Widen::kStrips];  // alone there is no need to keep them, nor are there registers
        product.each([&](int row, int strip, int offset, const Run& u) {
            const Run y = gelu_of<T>(u);
            put_everywhere<kParts>(tile.at(first + row, lane / 4, column_of(strip) + offset), y);
            if constexpr (kParts == 1)
                store(first + row + lane / 4, column_of(strip) + offset, u, y);
            else
                kept[2 * strip + row / 8] = y;
        });
        if constexpr (kParts > 1) await_copies<0>();
        meet<kParts>([&] {
            if constexpr (kParts > 1)
                product.each([&](int row, int strip, int offset, const Run& u) {
                    store(first + row + lane / 4, column_of(strip) + offset, u, kept[2 * strip + row / 8]);
                });
        });
    }
    __device__ void run(InWeights& in, int filled) {
        project_in(in);
        FewWeights few;
        begin_few(few, out_weights, kOutWeights);
        __syncthreads();
        fetch_last();
        attend_all(filled);
        if constexpr (kParts == 1) store_attended();
            // What follows attention, then what follows the inner columns, by the same code.
#pragma unroll 1
        for (int second = 0; second < 2; ++second) {
            add_few(few, second == 0 ? kAttended / kRun : 0, (second == 0 ? kWidth : kInner) / kChunk,
                    second == 0 ? out_bias : narrow_bias, a.dropout[second]);
            WidenWeights wide;
            if (second == 0) begin(wide, widen_weights, widen_first(), kWidenWeights, warp / kRowWarps * kWidenTiles);
            meet<kParts>([&] {
                if (kParts > 1 && second == 0) store_attended();
            });
            norm(second);
            if (second == 1) return;
            widen(wide, few);
        }
    }
};

}  // namespace millrace::ops::cuda::sequence
