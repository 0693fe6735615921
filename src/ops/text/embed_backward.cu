// Gradients of token_embed. The table's: tokens are sorted by id (token_sort.cuh); then a block sums the runs of equal ids among
// kSpan neighbours, and runs that cross the border of blocks are put together from what each block leaves. All sums have an order
// that follows from ids and lengths alone. Rows of ids that have no token become zeros, or are left out and have no flag.

#include "ops/cuda/run.cuh"
#include "ops/cuda/squares.h"
#include "ops/text/text.h"
#include "ops/text/token_sort.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kChunkRows = kChunk / kLanes;  ///< blocks of the first kernel are kLanes x kChunkRows
constexpr int kGroups = 16;                  ///< blocks of the sums are kLanes x kGroups
constexpr int kPlaces = 8;                   ///< sorted places of kLanes threads: all of their loads are under way at once
constexpr int kSpan = kGroups * kPlaces;     ///< sorted places of a block
static_assert(kChunk % kSpan == 0);

template <class T>
struct BackwardArgs {
    Mat<const T> dy;
    Mat<const std::int32_t> ids, lengths;
    Mat<float> dtable, dposition;
    EmbedShape shape;
    int vocabulary;
    int members;
    int chunks, position_blocks;  ///< blocks of the first kernel that sort and that sum over sequences, for each member
    int together;                 ///< positions that a block sums
    bool add_table, add_position;
    TokenKey* keys;  ///< [K][count()]
    float* squares;  ///< [K][square_parts()]: sums of squares of dtable, by run_kernel, then by border_kernel; null: not computed
    float* borders;  ///< [K][spans()][2][cols]: sum of a run from earlier blocks that ends here, of one that goes on behind
    std::uint8_t* flags;  ///< of written rows (WrittenRows), of all members in a row; null: the others become zeros
    int flag_shift;

    __host__ __device__ int count() const { return chunks * kChunk; }
    __host__ __device__ int spans() const { return count() / kSpan; }
    __host__ __device__ int flag_words() const {  // of 16 bytes
        return static_cast<int>((((std::int64_t{members} * vocabulary * shape.cols) >> flag_shift) + 15) / 16);
    }
    __host__ __device__ int square_parts(int tiles) const { return (2 * spans() - 1) * tiles; }
    /// By all threads of a block of run_kernel or, behind all of those, of border_kernel; `shared` as in block_sum.
    __device__ void put_squares(bool of_border, float sum, float* shared) const {
        if (squares == nullptr) return;
        sum = block_sum(sum, shared);
        const int before = of_border ? static_cast<int>(gridDim.y) * spans() : 0;
        if (threadIdx.x + threadIdx.y == 0)
            squares[static_cast<int>(blockIdx.z) * square_parts(static_cast<int>(gridDim.y)) + before +
                    static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x)] = sum;
    }
    /// A run of W columns of dtable from c on. Returns the sum of the squares of what was written.
    template <int W>
    __device__ float put_table(int k, int id, int c, float (&sum)[W]) const {
        const std::int64_t row = std::int64_t{k} * vocabulary + id;
        if (flags != nullptr && (c & ((1 << flag_shift) - 1)) == 0) flags[(row * shape.cols + c) >> flag_shift] = 1;
        return put_run(dtable.row(k, 0, id) + c, sum, add_table);
    }
    __device__ float* border(int k, int span, int side) const {
        return borders + ((std::int64_t{k} * spans() + span) * 2 + side) * shape.cols;
    }
};

/// `together` positions from `first_at` on and a tile of columns, each by as many rows of threads: sequences in strides of those,
/// then these sums in order.
template <class T, int W>
__device__ void sum_positions(const BackwardArgs<T>& a, int k, int first_at, int tile, float (&sums)[kChunkRows][kLanes * W]) {
    constexpr int kBatch = 2;  // loads under way at once; more take more registers than two blocks of a multiprocessor have
    const EmbedShape& shape = a.shape;
    const int c = (tile * kLanes + threadIdx.x) * W, rows = kChunkRows / a.together, at = first_at + threadIdx.y / rows;
    float sum[W] = {};
    for (int first = threadIdx.y % rows; first < shape.sequences && c < shape.cols; first += kBatch * rows) {
        bool filled[kBatch];
        Run<T, W> v[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int b = first + i * rows;
            filled[i] = b < shape.sequences && at < shape.prefix + tokens_of(a.lengths, k, b, shape.tokens);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (filled[i]) v[i] = load_as_stored<W>(a.dy.row(k, 0, (first + i * rows) * shape.positions() + at) + c);
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
#pragma unroll
            for (int j = 0; j < W; ++j) sum[j] += filled[i] ? load(v[i].v + j) : 0;
    }
    store_run(&sums[threadIdx.y][threadIdx.x * W], sum);
    __syncthreads();
    const int thread = threadIdx.y * kLanes + threadIdx.x, which = thread / (kLanes * W), column = thread % (kLanes * W);
    const int to = tile * kLanes * W + column;
    if (which >= a.together || first_at + which >= shape.positions() || to >= shape.cols) return;
    float total = 0;
    for (int y = 0; y < min(rows, shape.sequences); ++y) total += sums[which * rows + y][column];
    put(a.dposition.row(k, 0, first_at + which) + to, total, a.add_position);
}

/// What does not wait for anything: sorts chunks of tokens, sums over sequences, clears the table's gradient or its flags. Blocks
/// that sort come first, for they take longest; those that clear come last and share the rows of all members.
template <class T, int W>
__global__ void __launch_bounds__(kChunk, blocks_at_once(kChunk, 2)) first_kernel(BackwardArgs<T> a) {
    __shared__ union {
        SortMemory sort;
        alignas(16) float sums[kChunkRows][kLanes * W];
    } memory;
    begin_kernel();
    int block = blockIdx.x;
    if (block < a.chunks * a.members) {
        const int k = block / a.chunks;
        sort_chunk(a.ids, a.lengths, k, a.shape, a.vocabulary, block % a.chunks, threadIdx.y * kLanes + threadIdx.x,
                   a.keys + std::int64_t{k} * a.count(), memory.sort);
        return;
    }
    block -= a.chunks * a.members;
    if (block < a.position_blocks * a.members) {
        const int k = block / a.position_blocks, at = block % a.position_blocks;
        const int across = (a.shape.positions() + a.together - 1) / a.together;
        sum_positions<T, W>(a, k, at % across * a.together, at / across, memory.sums);
        return;
    }
    const int before = (a.chunks + a.position_blocks) * a.members, step = (gridDim.x - before) * kChunkRows;
    if (a.flags != nullptr) {
        int i = (blockIdx.x - before) * kChunk + threadIdx.y * kLanes + threadIdx.x;
        for (; i < a.flag_words(); i += step * kLanes) reinterpret_cast<uint4*>(a.flags)[i] = make_uint4(0, 0, 0, 0);
        return;
    }
    constexpr int kStored = W % 4 == 0 ? 4 : W;  // neighbouring threads fill whole sectors
    const float zeros[kStored] = {};
    for (int row = (blockIdx.x - before) * kChunkRows + threadIdx.y; row < a.vocabulary * a.members; row += step) {
        float* to = a.dtable.row(row / a.vocabulary, 0, row % a.vocabulary);
        for (int c = threadIdx.x * kStored; c < a.shape.cols; c += kLanes * kStored) store_run(to + c, zeros);
    }
}

/// from, to: [K][count].
__global__ void merge_kernel(const TokenKey* from, TokenKey* to, int run, int count) {
    begin_kernel();
    const std::int64_t member = std::int64_t{count} * blockIdx.z;
    merge_runs(from + member, to + member, run, count, blockIdx.x);
}

/// The ids and rows of a block's places. ids[1 + i] is that of place i; the places before and behind are there as well.
struct Span {
    int ids[kSpan + 2], rows[kSpan];

    /// The group in which the run of `id` begins that stands at the end of group `last`, or goes on from there into the next;
    /// 0 also when it began before the block.
    __device__ int first_group(int last, int id) const {
        int group = last;
        while (group > 0 && ids[group * kPlaces] == id) --group;
        return group;
    }
};

/// One block per kSpan sorted places and tile of columns. Runs within a group of kLanes threads are summed in registers, those
/// that cross groups by the group in which they end.
template <class T, int W>
__global__ void __launch_bounds__(kLanes* kGroups) run_kernel(BackwardArgs<T> a) {
    __shared__ Span span;
    alignas(16) __shared__ float heads[kGroups][kLanes * W], tails[kGroups][kLanes * W];
    __shared__ float shared[32];
    begin_kernel();
    const int k = blockIdx.z, group = threadIdx.y, first = blockIdx.x * kSpan;
    const TokenKey* keys = a.keys + std::int64_t{k} * a.count();
    for (int i = group * kLanes + threadIdx.x; i < kSpan + 2; i += kLanes * kGroups) {
        const int place = first + i - 1;
        const bool exists = place >= 0 && place < a.count();
        const TokenKey key = exists ? keys[place] : 0;
        span.ids[i] = exists ? id_of(key) : a.vocabulary;
        if (i >= 1 && i <= kSpan) span.rows[i - 1] = id_of(key) < a.vocabulary ? a.shape.row_of(token_of(key)) : 0;
    }
    __syncthreads();
    if (span.ids[1] == a.vocabulary) {  // nothing but tokens without a row
        a.put_squares(false, 0, shared);
        return;
    }
    float squares = 0;  // of the rows that are finished here
    const int c = (blockIdx.y * kLanes + threadIdx.x) * W, mine = threadIdx.x * W;
    const bool inside = c < a.shape.cols;
    const int* ids = span.ids + group * kPlaces;  // ids[1 + i]: of place i of the group
    float v[kPlaces][W] = {};
#pragma unroll
    for (int i = 0; i < kPlaces; ++i)
        if (inside && ids[1 + i] < a.vocabulary) load_run(a.dy.row(k, 0, span.rows[group * kPlaces + i]) + c, v[i]);
    float sum[W] = {};
    bool open = ids[0] == ids[1];  // the run began before the group
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
        add_run(sum, v[i]);
        const int id = ids[1 + i];
        if (id == ids[2 + i]) continue;
        if (open)
            store_run(&heads[group][mine], sum);
        else if (inside && id < a.vocabulary)
            squares += a.put_table(k, id, c, sum);
        open = false;
#pragma unroll
        for (float& s : sum) s = 0;
    }
    store_run(&tails[group][mine], sum);
    __syncthreads();
    const auto sum_tails = [&](int from, int to, float(&total)[W]) {
        for (int g = from; g < to; ++g) {
            float tail[W];
            load_run(&tails[g][mine], tail);
            add_run(total, tail);
        }
    };
    if (const int id = ids[1]; inside && id == ids[0] && id != ids[1 + kPlaces] && id < a.vocabulary) {
        const int from = span.first_group(group, id);
        float total[W] = {}, head[W];
        sum_tails(from, group, total);
        load_run(&heads[group][mine], head);
        add_run(total, head);
        if (from == 0 && span.ids[0] == id)
            store_run(a.border(k, blockIdx.x, 0) + c, total);
        else
            squares += a.put_table(k, id, c, total);
    }
    if (const int id = span.ids[kSpan]; inside && group == kGroups - 1 && id == span.ids[kSpan + 1] && id < a.vocabulary) {
        float total[W] = {};
        sum_tails(span.first_group(group, id), kGroups, total);
        store_run(a.border(k, blockIdx.x, 1) + c, total);
    }
    a.put_squares(false, squares, shared);
}

/// One block per block but the first of run_kernel: when a run of earlier blocks ends in this one, it adds what they left.
template <class T, int W>
__global__ void __launch_bounds__(kLanes* kGroups) border_kernel(BackwardArgs<T> a) {
    alignas(16) __shared__ float sums[kGroups][kLanes * W];
    __shared__ float shared[32];
    begin_kernel();
    const int k = blockIdx.z, block = blockIdx.x + 1, group = threadIdx.y, thread = group * kLanes + threadIdx.x;
    const TokenKey* keys = a.keys + std::int64_t{k} * a.count();
    const int last = id_of(keys[block * kSpan - 1]), id = id_of(keys[block * kSpan]);
    const int next = block + 1 < a.spans() ? id_of(keys[(block + 1) * kSpan]) : a.vocabulary;
    if (id != last || id == next || id == a.vocabulary) {
        a.put_squares(true, 0, shared);
        return;
    }
    int earlier = 0, found;  // blocks before this one in which the run stands
    do {
        const int b = block - earlier - thread;
        found = __syncthreads_count(b > 0 && id_of(keys[b * kSpan - 1]) == id);
        earlier += found;
    } while (found == kLanes * kGroups);
    const int c = (blockIdx.y * kLanes + threadIdx.x) * W, mine = threadIdx.x * W;
    const bool inside = c < a.shape.cols;
    float sum[W] = {}, v[W];
#pragma unroll 4
    for (int b = block - earlier + group; inside && b < block; b += kGroups) {
        load_run(a.border(k, b, 1) + c, v);
        add_run(sum, v);
    }
    store_run(&sums[group][mine], sum);
    __syncthreads();
    float squares = 0;
    if (group == 0 && inside) {
        for (int g = 1; g < kGroups; ++g) {
            load_run(&sums[g][mine], v);
            add_run(sum, v);
        }
        load_run(a.border(k, block, 0) + c, v);
        add_run(sum, v);
        squares = a.put_table(k, id, c, sum);
    }
    a.put_squares(true, squares, shared);
}

/// One block per vector of the prefix.
template <class T>
__global__ void before_kernel(Mat<const T> dy, Mat<T> dbefore, EmbedShape shape, bool accumulate) {
    begin_kernel();
    const int sequence = blockIdx.x / shape.prefix, at = blockIdx.x % shape.prefix, k = blockIdx.z;
    const T* from = dy.row(k, 0, sequence * shape.positions() + at);
    T* to = dbefore.row(k, 0, sequence) + at * shape.cols;
    for (int c = threadIdx.x; c < shape.cols; c += blockDim.x) put(to + c, load(from + c), accumulate);
}

/// Sorted keys of all chunks, in one of two tables; the rounds go from one to the other.
TokenKey* launch_merges(cudaStream_t stream, int members, TokenKey* keys, TokenKey* other, int count) {
    for (std::int64_t run = kChunk; run < count; run *= kMergeRuns) {
        const auto runs = std::min<std::int64_t>(kMergeRuns, blocks_for(count, static_cast<int>(run)));
        launch(merge_kernel, dim3(count / kMergeKeys, 1, members), dim3(kMergeKeys, static_cast<unsigned>(runs)), 0, stream, keys,
               other, static_cast<int>(run), count);
        std::swap(keys, other);
    }
    return keys;
}

}  // namespace

KernelResult make_token_embed_backward(Context& c, const Bound& b) {
    namespace at = token_embed_backward;
    const Operand &dy = b[at::dy], &ids = b[at::ids], &l = b[at::lengths], &dt = b[at::dtable], &dp = b[at::dposition],
                  &db = b[at::dbefore];
    const EmbedShape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, dy.cols};
    const bool table = dt.present() && dt.count() > 0, positions = dp.present() && dp.count() > 0,
               before = db.present() && db.count() > 0;
    const int chunks = table ? static_cast<int>(blocks_for(std::int64_t{shape.sequences} * shape.tokens, kChunk)) : 0;
    const auto chunk_count = static_cast<std::size_t>(chunks) * static_cast<std::size_t>(dy.k);
    const std::size_t keys = chunk_count * kChunk,
                      floats = chunk_count * (kChunk / kSpan) * 2 * static_cast<std::size_t>(dy.cols);
    MILLRACE_LET(sorted, zero_table(c, std::max<std::size_t>(1, 2 * keys * sizeof(TokenKey))));
    MILLRACE_LET(borders, zero_table(c, std::max<std::size_t>(1, floats * sizeof(float))));
    return by_width(dy.dtype, dy.cols, {dy, dt, dp}, [&]<class T, int W>(T, std::integral_constant<int, W>) -> KernelResult {
        const bool add_table = b.accumulates(at::dtable), add_before = b.accumulates(at::dbefore);
        const unsigned tiles = column_tiles(dy.cols, W), members = static_cast<unsigned>(dy.k);
        int together = 1;  // no rows of threads without a sequence
        while (together < kChunk / (kLanes * 8) && 2 * together * shape.sequences <= kChunkRows) together *= 2;
        const int position_blocks =
            positions ? static_cast<int>(tiles) * static_cast<int>(blocks_for(shape.positions(), together)) : 0;
        BackwardArgs<T> args{.dy = dy,
                             .ids = ids,
                             .lengths = l,
                             .dtable = dt,
                             .dposition = dp,
                             .shape = shape,
                             .vocabulary = dt.rows,
                             .members = dy.k,
                             .chunks = chunks,
                             .position_blocks = position_blocks,
                             .together = together,
                             .add_table = add_table,
                             .add_position = b.accumulates(at::dposition),
                             .keys = static_cast<TokenKey*>(sorted),
                             .squares = nullptr,
                             .borders = static_cast<float*>(borders),
                             .flags = nullptr,
                             .flag_shift = 0};
        DeviceTable squares;
        std::shared_ptr<GradientSquares> rows;
        if (chunks > 0 && !add_table) {  // rows without a token are zeros
            MILLRACE_LET(left, leave_squares(c, dt, args.square_parts(static_cast<int>(tiles))));
            squares = left;
            args.squares = static_cast<float*>(squares);
            MILLRACE_LET(flagged, leave_rows(c, squares));
            rows = flagged;
            if (rows) args.flag_shift = rows->rows.shift;
        }
        // A multiprocessor holds two of these blocks.
        const unsigned most = table && !add_table ? 2 * static_cast<unsigned>(c.multiprocessors) : 0,
                       clearing = std::min(blocks_for(std::int64_t{dt.rows} * dy.k, kChunkRows), most),
                       working = static_cast<unsigned>(chunks + position_blocks) * members;
        return make_kernel([=, stream = c.stream, held = borders, left = squares] {
            BackwardArgs<T> first = args;
            if (rows && rows->rows.skip_zeros) first.flags = static_cast<std::uint8_t*>(rows->rows.flags);
            const unsigned blocks =
                working + (first.flags != nullptr ? std::min(blocks_for(first.flag_words(), kChunk), most) : clearing);
            if (blocks > 0) launch(first_kernel<T, W>, dim3(blocks), dim3(kLanes, kChunkRows), 0, stream, first);
            if (args.chunks > 0) {
                BackwardArgs<T> merged = first;
                merged.keys = launch_merges(stream, dy.k, args.keys, static_cast<TokenKey*>(sorted) + keys, args.count());
                const auto spans = static_cast<unsigned>(args.spans());
                const dim3 block(kLanes, kGroups);
                launch(run_kernel<T, W>, dim3(spans, tiles, members), block, 0, stream, merged);
                if (spans > 1) launch(border_kernel<T, W>, dim3(spans - 1, tiles, members), block, 0, stream, merged);
            }
            if (before)
                launch(before_kernel<T>, dim3(static_cast<unsigned>(shape.sequences * shape.prefix), 1, members), dim3(128), 0,
                       stream, dy, db, shape, add_before);
        });
    });
}

}  // namespace millrace::ops::cuda
