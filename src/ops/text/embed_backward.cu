// Gradients of token_embed. The table's: a block has a share of the ids, finds and sorts their tokens (token_share.cuh), and sums
// the runs of equal ids, kSpan tokens at a time. All sums have an order that follows from ids, lengths and the shape alone. Rows
// of ids that have no token become zeros, or are left out and have no flag.

#include "ops/cuda/squares.h"
#include "ops/cuda/vector.cuh"
#include "ops/text/text.h"
#include "ops/text/token_share.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kPlaces = 8;                ///< sorted places of kLanes threads: all of their loads are under way at once
constexpr int kSpan = kGroups * kPlaces;  ///< sorted places of a block at once

template <class T>
struct BackwardArgs {
    Mat<const T> dy;
    SharedIds share;
    Mat<float> dtable, dposition;
    int table_blocks;  ///< of a tile of columns: one per share, or 0; the others sum over sequences
    int together;      ///< positions that a block sums
    bool add_table, add_position;
    bool early;           ///< ids and lengths are not written by the launch in front
    Token* scratch;       ///< [K][tiles][2][tokens]
    float* squares;       ///< [K][tiles][shares]: sums of squares of dtable; null: not computed
    std::uint8_t* flags;  ///< of written rows (WrittenRows), of all members in a row; null: the others become zeros
    int flag_shift;

    /// Of a row of dtable, from column c on where a flag begins there.
    __device__ void put_flag(int k, int id, int c, bool written) const {
        const std::int64_t row = std::int64_t{k} * share.vocabulary + id;
        if (flags != nullptr && (c & ((1 << flag_shift) - 1)) == 0) flags[(row * share.shape.cols + c) >> flag_shift] = written;
    }
    /// A run of W columns of dtable from c on. Returns the sum of the squares of what was written.
    template <int W>
    __device__ float put_table(int k, int id, int c, float (&sum)[W]) const {
        put_flag(k, id, c, true);
        return put_run(dtable.row(k, 0, id) + c, sum, add_table);
    }
};

/// The ids and rows of kSpan places of sorted tokens. ids[1 + i] is that of place i; those before and behind are there as well,
/// negative where there is none.
struct Span {
    int ids[kSpan + 2], rows[kSpan];

    __device__ void load(const Token* sorted, int first, int count, const EmbedShape& shape) {
        for (int i = threadIdx.y * kLanes + threadIdx.x; i < kSpan + 2; i += kShareThreads) {
            const int place = first + i - 1;
            const Token token = place >= 0 && place < count ? sorted[place] : Token{-1, 0};
            ids[i] = token.id;
            if (i >= 1 && i <= kSpan) rows[i - 1] = token.id >= 0 ? shape.row_of(token.number) : 0;
        }
    }
    /// The group in which the run of `id` begins that stands at the end of group `last`, or goes on from there into the next;
    /// 0 also when it began before the span.
    __device__ int first_group(int last, int id) const {
        int group = last;
        while (group > 0 && ids[group * kPlaces] == id) --group;
        return group;
    }
};

template <int W>
struct SumMemory {
    using Row = float[kLanes * W];
    alignas(16) Row heads[kGroups], tails[kGroups];  ///< of a group's places: the run that began before it, that goes on behind
    alignas(16) Row open[2];                         ///< sum of the run that goes on behind a span, by turns
    Span span;

    /// Adds up what groups [from, to) left of the run of `id`, and spans before this one where it began there.
    __device__ void add_earlier(int id, int from, int to, int turn, float (&total)[W]) const {
        const int mine = threadIdx.x * W;
        float part[W];
        if (from == 0 && span.ids[0] == id) {
            load_run(&open[turn][mine], part);
            add_run(total, part);
        }
        for (int g = from; g < to; ++g) {
            load_run(&tails[g][mine], part);
            add_run(total, part);
        }
    }
};

template <class T, int W>
__device__ void add_stored(float (&sum)[W], const Run<T, W>& run) {
    float v[W];
    load_run(run.v, v);
    add_run(sum, v);
}

/// The places of a span. Runs within a group of kLanes threads are summed in registers, those that cross groups by the group in
/// which they end. Returns the sum of the squares of what was written.
template <class T, int W>
__device__ float sum_span(const BackwardArgs<T>& a, int k, int c, int turn, SumMemory<W>& m) {
    const int group = threadIdx.y, mine = threadIdx.x * W;
    const bool inside = c < a.share.shape.cols;
    const int* ids = m.span.ids + group * kPlaces;  // ids[1 + i]: of place i of the group
    Run<T, W> v[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i)
        if (inside && ids[1 + i] >= 0) v[i] = load_as_stored<W>(a.dy.row(k, 0, m.span.rows[group * kPlaces + i]) + c);
    float squares = 0, sum[W] = {};
    bool open = ids[0] == ids[1];  // the run began before the group
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
        const int id = ids[1 + i];
        if (inside && id >= 0) add_stored(sum, v[i]);
        if (id == ids[2 + i]) continue;
        if (open)
            store_run(&m.heads[group][mine], sum);
        else if (inside && id >= 0)
            squares += a.put_table(k, id, c, sum);
        open = false;
#pragma unroll
        for (float& s : sum) s = 0;
    }
    store_run(&m.tails[group][mine], sum);
    __syncthreads();
    if (const int id = ids[1]; inside && id == ids[0] && id != ids[1 + kPlaces] && id >= 0) {
        float total[W] = {}, head[W];
        m.add_earlier(id, m.span.first_group(group, id), group, turn, total);
        load_run(&m.heads[group][mine], head);
        add_run(total, head);
        squares += a.put_table(k, id, c, total);
    }
    if (const int id = m.span.ids[kSpan]; group == kGroups - 1 && id == m.span.ids[kSpan + 1] && id >= 0) {
        float total[W] = {};
        m.add_earlier(id, m.span.first_group(group, id), kGroups, turn, total);
        store_run(&m.open[1 - turn][mine], total);
    }
    return squares;
}

/// Rows of ids that have no token.
template <int W, class T>
__device__ void clear_rows(const BackwardArgs<T>& a, int k, int share, int c, const int* counts) {
    const float zeros[W] = {};
    for (int i = threadIdx.y; i < a.share.ids_of(share) && c < a.share.shape.cols; i += kGroups) {
        if (counts[i] > 0) continue;
        const int id = share + (i << a.share.bits);
        a.put_flag(k, id, c, false);
        if (a.flags == nullptr) store_run(a.dtable.row(k, 0, id) + c, zeros);
    }
}

/// `together` positions from `first_at` on, each by as many groups: sequences in strides of those, then these sums in order.
template <class T, int W>
__device__ void sum_positions(const BackwardArgs<T>& a, int k, int first_at, int c, SumMemory<W>& m) {
    constexpr int kBatch = 4;  // loads under way at once
    const EmbedShape& shape = a.share.shape;
    const int groups = kGroups / a.together, at = first_at + threadIdx.y / groups, mine = threadIdx.x * W;
    const bool inside = at < shape.positions() && c < shape.cols;
    float sum[W] = {};
    for (int first = threadIdx.y % groups; first < shape.sequences && inside; first += kBatch * groups) {
        bool filled[kBatch];
        Run<T, W> v[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int b = first + i * groups;
            filled[i] = b < shape.sequences && at < shape.prefix + tokens_of(a.share.lengths, k, b, shape.tokens);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (filled[i]) v[i] = load_as_stored<W>(a.dy.row(k, 0, (first + i * groups) * shape.positions() + at) + c);
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            if (filled[i]) add_stored(sum, v[i]);
    }
    store_run(&m.heads[threadIdx.y][mine], sum);
    __syncthreads();
    if (threadIdx.y % groups != 0 || !inside) return;
    for (int g = 1; g < groups; ++g) {
        float part[W];
        load_run(&m.heads[threadIdx.y + g][mine], part);
        add_run(sum, part);
    }
    put_run(a.dposition.row(k, 0, at) + c, sum, a.add_position);
}

/// A tile of columns (blockIdx.y) of a share of the table, or of some positions.
template <class T, int W>
__global__ void __launch_bounds__(kShareThreads, 3) backward_kernel(const __grid_constant__ BackwardArgs<T> a) {
    __shared__ ShareMemory found;
    __shared__ SumMemory<W> memory;
    __shared__ float shared[32];
    const int k = blockIdx.z, c = (blockIdx.y * kLanes + threadIdx.x) * W, share = blockIdx.x;
    if (share >= a.table_blocks) {
        begin_kernel();
        sum_positions<T, W>(a, k, (share - a.table_blocks) * a.together, c, memory);
        return;
    }
    const std::int64_t list = std::int64_t{k} * gridDim.y + blockIdx.y;
    if (!a.early) begin_kernel();
    const Token* sorted;
    const int count = sort_share(a.share, k, share, a.scratch + list * 2 * a.share.tokens(), found, sorted);
    if (a.early) begin_kernel();
    float squares = 0;
    for (int first = 0, turn = 0; first < count; first += kSpan, turn = 1 - turn) {
        memory.span.load(sorted, first, count, a.share.shape);
        __syncthreads();
        squares += sum_span(a, k, c, turn, memory);
        __syncthreads();
    }
    if (!a.add_table) clear_rows<W>(a, k, share, c, found.counts);
    if (a.squares == nullptr) return;
    squares = block_sum(squares, shared);
    if (threadIdx.x + threadIdx.y == 0) a.squares[list * a.table_blocks + share] = squares;
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

/// Blocks for all multiprocessors of today and each with few enough ids. It must not depend on the members: it decides about the
/// order of sums.
int share_bits(int vocabulary, int tiles) {
    int bits = 0;
    while ((vocabulary >> bits) >= 2 && (tiles << bits < 128 || (vocabulary >> bits) >= kMostIds)) ++bits;
    return bits;
}

/// Positions of a block whose groups have a batch of sequences each, or as few as there are.
int positions_together(int sequences) {
    int together = kGroups;
    while (together > 1 && kGroups / together * 4 < sequences) together /= 2;
    return together;
}

}  // namespace

KernelResult make_token_embed_backward(Context& c, const Bound& b) {
    namespace at = token_embed_backward;
    const Operand &dy = b[at::dy], &ids = b[at::ids], &l = b[at::lengths], &dt = b[at::dtable], &dp = b[at::dposition],
                  &db = b[at::dbefore];
    const EmbedShape shape{l.rows, ids.cols, b.params<TokenParams>().prefix, dy.cols};
    const bool table = dt.present() && dt.count() > 0, positions = dp.present() && dp.count() > 0,
               before = db.present() && db.count() > 0, add_before = b.accumulates(at::dbefore);
    return by_width(dy.dtype, dy.cols, {dy, dt, dp}, [&]<class T, int W>(T, std::integral_constant<int, W>) -> KernelResult {
        const unsigned tiles = column_tiles(dy.cols, W), members = static_cast<unsigned>(dy.k);
        const SharedIds share{ids, l, shape, dt.rows, share_bits(dt.rows, static_cast<int>(tiles))};
        const auto lists = table ? std::size_t{tiles} * members * 2 * static_cast<std::size_t>(share.tokens()) : 0;
        MILLRACE_LET(scratch, zero_table(c, std::max<std::size_t>(1, lists) * sizeof(Token)));
        BackwardArgs<T> args{.dy = dy,
                             .share = share,
                             .dtable = dt,
                             .dposition = dp,
                             .table_blocks = table ? share.shares() : 0,
                             .together = positions_together(shape.sequences),
                             .add_table = b.accumulates(at::dtable),
                             .add_position = b.accumulates(at::dposition),
                             .early = c.reads_early({&ids, &l}),
                             .scratch = static_cast<Token*>(scratch),
                             .squares = nullptr,
                             .flags = nullptr,
                             .flag_shift = 0};
        DeviceTable squares;
        std::shared_ptr<GradientSquares> rows;
        if (table && !args.add_table) {  // rows without a token are zeros
            MILLRACE_LET(left, leave_squares(c, dt, args.table_blocks * static_cast<int>(tiles)));
            squares = left;
            args.squares = static_cast<float*>(squares);
            MILLRACE_LET(flagged, leave_rows(c, squares));
            rows = flagged;
            if (rows) args.flag_shift = rows->rows.shift;
        }
        const unsigned blocks =
            static_cast<unsigned>(args.table_blocks) + (positions ? blocks_for(shape.positions(), args.together) : 0);
        return make_kernel([=, stream = c.stream, held = scratch, left = squares] {
            BackwardArgs<T> now = args;
            if (rows && rows->rows.skip_zeros) now.flags = static_cast<std::uint8_t*>(rows->rows.flags);
            if (blocks > 0) launch(backward_kernel<T, W>, dim3(blocks, tiles, members), dim3(kLanes, kGroups), 0, stream, now);
            if (before)
                launch(before_kernel<T>, dim3(static_cast<unsigned>(shape.sequences * shape.prefix), 1, members), dim3(128), 0,
                       stream, dy, db, shape, add_before);
        });
    });
}

}  // namespace millrace::ops::cuda
