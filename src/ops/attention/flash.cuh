#pragma once
// Pieces of attention on tensor cores (T: bf16 or f16). A warp owns 16 kTiles rows (queries, or keys on the way back) as
// fragments in registers; rows of the other side stream through shared memory in tiles. Products of own and streamed rows stay in
// registers: as the sums of an m16n8k16 step they lie as the next step's left side wants them.

#include "ops/attention/attention.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {

constexpr int kFlashWarps = 4, kFlashThreads = 32 * kFlashWarps;
constexpr int kStreamed = 64;  ///< rows of a tile
constexpr float kLn2 = 0.69314718f;

/// How a block holds rows of heads of up to kWidth columns: own() of one side, tiles of tile() of the other, two of these in
/// flight. Eight rows of a fragment lie in different banks, being stride() elements apart. kHeld: fragments of own rows stay in
/// registers; where these are short they are read again for every product.
/// kWhole: rows of every head begin at multiples of 16 bytes.
template <int kWidth_, int kTiles_, bool kHeld_ = true, bool kWhole = true>
struct FlashForm {
    static constexpr int kWidth = kWidth_, kTiles = kTiles_, kUnroll = kWidth / 16, kBuffers = 2, slice = 0;
    static constexpr int kMostThreads = kFlashThreads;
    static constexpr bool kHeld = kHeld_, kAny = false, kInFull = kWhole, whole = kWhole;
    __host__ __device__ static constexpr int own() { return 16 * kTiles * kFlashWarps; }
    __host__ __device__ static constexpr int tile() { return kStreamed; }
    __host__ __device__ static constexpr int columns() { return kWidth; }
    __host__ __device__ static constexpr int stride() { return kWidth + 8; }
    __host__ __device__ static constexpr int slices() { return 1; }
    __host__ __device__ static constexpr int exchanged() { return 0; }
};

/// The same of heads of any width and alignment: rows are filled up with zeros to a multiple of 16 columns. Results of a warp are
/// a slice of kWidth columns, so that a head of any width fits into registers. The warps of 16 own rows share their scores, which
/// run over all columns: each finds some and leaves them in shared memory.
struct AnyForm {
    static constexpr int kWidth = 64, kTiles = 1, kUnroll = 4, kBuffers = 1;
    static constexpr int kMostThreads = 512;
    static constexpr bool kHeld = false, kAny = true, kInFull = false;
    int own_rows, tile_rows, all_columns;
    bool whole;     ///< rows of every head begin at multiples of 16 bytes
    int slice = 0;  ///< first column of a warp's results
    [[nodiscard]] __host__ __device__ int own() const { return own_rows; }
    [[nodiscard]] __host__ __device__ int tile() const { return tile_rows; }
    [[nodiscard]] __host__ __device__ int columns() const { return all_columns; }
    [[nodiscard]] __host__ __device__ int stride() const { return all_columns + 8; }
    [[nodiscard]] __host__ __device__ int slices() const { return (all_columns + kWidth - 1) / kWidth; }
    /// Numbers in shared memory that warps leave for each other.
    [[nodiscard]] __host__ __device__ int exchanged() const { return own_rows * tile_rows; }
};

/// Bytes of `matrices` of own rows and of pairs of streamed tiles, and behind these of what warps exchange.
template <class Form>
constexpr std::size_t flash_bytes(const Form& form, int matrices, int pairs = Form::kBuffers) {
    return 2 * static_cast<std::size_t>((matrices * form.own() + 2 * pairs * form.tile()) * form.stride()) +
           sizeof(float) * static_cast<std::size_t>(form.exchanged());
}
/// Blocks of a head.
template <class T, class Form>
__host__ __device__ int flash_blocks(const AttentionArgs<T>& a, const Form& form) {
    return (a.shape.positions + form.own() - 1) / form.own();
}
/// Threads of a block: a warp for every slice of 16 kTiles own rows.
template <class Form>
int flash_threads(const Form& form) {
    return 2 * form.own() / Form::kTiles * form.slices();
}

/// Which rows of which head a block has. Number 0 of all heads of a group begin first, then number 1, ...: when these see most,
/// the last blocks to begin are short and multiprocessors finish together. The group's keys and values stay in the L2 cache.
struct FlashBlock {
    AttentionPlace place;
    int first, own;  ///< row of the block, of the warp

    /// late_first: late rows begin first. Finds the warp's slice.
    template <class T, class Form>
    __device__ FlashBlock(const AttentionArgs<T>& a, Form& form, bool late_first) {
        constexpr int kGroup = 16;
        const int blocks = flash_blocks(a, form), pairs = a.pairs();
        const int begin = static_cast<int>(blockIdx.x) / (kGroup * blocks) * kGroup, group = min(kGroup, pairs - begin);
        const int inside = static_cast<int>(blockIdx.x) - begin * blocks;
        const int number = late_first ? blocks - 1 - inside / group : inside / group;
        const int warp = static_cast<int>(threadIdx.x) / 32;
        place = place_of(a, begin + inside % group);
        if constexpr (Form::kAny) form.slice = warp % form.slices() * Form::kWidth;
        first = number * form.own();
        own = first + 16 * Form::kTiles * (warp / form.slices());
    }
    /// Tiles of keys that some query of the block sees.
    template <class Form>
    [[nodiscard]] __device__ int seen_tiles(const AttentionShape& shape, const Form& form) const {
        if (first >= place.filled) return 0;
        return (shape.seen(min(first + form.own(), place.filled) - 1, place.filled) + form.tile() - 1) / form.tile();
    }
};

/// Eight elements of a row that begins anywhere, of which `left` are there: shifted out of those runs of eight bytes which have
/// some of them.
template <class T>
__device__ inline uint4 gather_eight(const T* from, int left) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    const int skip = static_cast<int>(address % 8), end = left > 0 ? skip + 2 * min(left, 8) : 0;
    const auto* runs = reinterpret_cast<const uint2*>(address - address % 8);
    std::uint32_t held[6], words[4];
#pragma unroll
    for (int r = 0; r < 3; ++r) {
        const uint2 run = 8 * r < end ? __ldcg(runs + r) : make_uint2(0, 0);
        held[2 * r] = run.x;
        held[2 * r + 1] = run.y;
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const std::uint32_t low = skip < 4 ? held[w] : held[w + 1], high = skip < 4 ? held[w + 1] : held[w + 2];
        const std::uint32_t word = __funnelshift_r(low, high, 8 * (skip % 4));
        words[w] = 2 * w + 1 < left ? word : 2 * w < left ? word & 0xffff : 0;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Begins copies of `count` rows of a head to shared memory: zeros from row `rows` on and in columns from `width` on.
template <class T, class Form>
__device__ inline void stage_rows(const Form& form, const T* from, int stride, int rows, int width, T* to, int count) {
    if constexpr (!Form::kInFull) {
        constexpr int kLanes = Form::kWidth < 64 ? Form::kWidth / 8 : 8, kAtOnce = 4;  // of a row; reads in flight
        const int thread = static_cast<int>(threadIdx.x), start = thread % kLanes * 8;
        for (int row = thread / kLanes, column = start; row < count;) {
            T* target[kAtOnce];
            uint4 held[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                target[i] = row < count && column < form.columns() ? to + row * form.stride() + column : nullptr;
                const T* source = from + row * stride + column;
                const int left = target[i] != nullptr && row < rows ? width - column : 0;
                if (!form.whole)
                    held[i] = gather_eight(source, left);
                else if (target[i] != nullptr)
                    copy16(shared_address(target[i]), source, left > 0);
                column += 8 * kLanes;
                if (column < form.columns()) continue;
                column = start;
                row += static_cast<int>(blockDim.x) / kLanes;
            }
#pragma unroll
            for (int i = 0; i < kAtOnce && !form.whole; ++i)
                if (target[i] != nullptr) *reinterpret_cast<uint4*>(target[i]) = held[i];
        }
    } else {
        constexpr int kVectors = Form::kWidth / 8, kStep = kFlashThreads / kVectors;
        static_assert(kStreamed % kStep == 0);
        const int row = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
        const int limit = column < width ? rows - row : 0;
        const std::uint32_t base = shared_address(to + row * form.stride() + column);
        from += row * stride + column;
#pragma unroll
        for (int i = 0; i < count; i += kStep) copy16(base + 2 * i * form.stride(), from + i * stride, i < limit);
    }
}

/// Tiles [begin, end) one after the other, of which the first has been begun and is there: stage(tile) begins copies, take(tile)
/// reads what they brought.
template <class Form, class Stage, class Take>
__device__ inline void stream_tiles(const Form&, int begin, int end, Stage stage, Take take) {
    for (int tile = begin; tile < end; ++tile) {
        if (tile > begin) {
            if constexpr (Form::kBuffers == 1) {
                __syncthreads();
                stage(tile);
                commit_copies();
            }
            await_copies<0>();
            __syncthreads();
        }
        if (Form::kBuffers > 1 && tile + 1 < end) stage(tile + 1);
        commit_copies();
        take(tile);
    }
}

/// Where this lane's row of a 16 x 16 block begins: for fragments of the left side and for transposed ones of the right side,
template <class Form>
__device__ inline int along_offset(const Form& form) {
    const int lane = threadIdx.x % 32;
    return (lane % 16) * form.stride() + lane / 16 * 8;
}
/// and for fragments of the right side as it lies.
template <class Form>
__device__ inline int across_offset(const Form& form) {
    const int lane = threadIdx.x % 32;
    return (lane % 8 + lane / 16 * 8) * form.stride() + lane / 8 % 2 * 8;
}

template <int kTiles, int kColumns>
using Sums = float[kTiles][kColumns / 8][4];
/// A factor for each of a thread's rows.
template <int kTiles>
using RowFactors = float[kTiles][2];
template <int kTiles>
__device__ inline void set_all(RowFactors<kTiles>& factors, float value) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) factors[m][0] = factors[m][1] = value;
}

/// Fragments of a warp's 16 kTiles rows.
template <class T, class Form, bool kHeld = Form::kHeld>
struct OwnRows {
    std::uint32_t held[Form::kTiles][Form::kWidth / 16][4];
    __device__ void load(const Form& form, const T* rows) {
        const T* from = rows + along_offset(form);
#pragma unroll
        for (int m = 0; m < Form::kTiles; ++m)
#pragma unroll
            for (int d = 0; d < Form::kWidth / 16; ++d) load_matrices(held[m][d], from + 16 * m * form.stride() + 16 * d);
    }
    __device__ void fragment(const Form&, std::uint32_t (&to)[4], int m, int d) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = held[m][d / 16][i];
    }
};
template <class T, class Form>
struct OwnRows<T, Form, false> {
    const T* from;
    __device__ void load(const Form& form, const T* rows) { from = rows + along_offset(form); }
    __device__ void fragment(const Form& form, std::uint32_t (&to)[4], int m, int d) const {
        load_matrices(to, from + 16 * m * form.stride() + d);
    }
};

/// sums = own rows times kColumns streamed rows, over all columns of the head.
template <int kColumns, class T, class Form>
__device__ inline void multiply_across(const Form& form, Sums<Form::kTiles, kColumns>& sums, const OwnRows<T, Form>& own,
                                       const T* streamed) {
    const T* from = streamed + across_offset(form);
    clear(sums);
#pragma unroll Form::kUnroll
    for (int d = 0; d < form.columns(); d += 16) {
        std::uint32_t left[Form::kTiles][4];
#pragma unroll
        for (int m = 0; m < Form::kTiles; ++m) own.fragment(form, left[m], m, d);
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
            std::uint32_t right[4];
            load_matrices(right, from + 16 * n * form.stride() + d);
#pragma unroll
            for (int m = 0; m < Form::kTiles; ++m) {
                mma16<T>(sums[m][2 * n], left[m], right[0], right[1]);
                mma16<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/// Fragments of the left side from the weights of own rows and of the 16 streamed rows whose columns begin at 8 n.
template <class T, int kTiles, int kColumns>
__device__ inline void pack_left(std::uint32_t (&left)[kTiles][4], const float (&weights)[kTiles][kColumns][4], int n) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) left[m][i] = pack<T>(weights[m][n + i / 2][i % 2 * 2], weights[m][n + i / 2][i % 2 * 2 + 1]);
}
/// sums += weights of own rows and of 16 streamed rows, as fragments, times these rows.
template <class T, class Form>
__device__ inline void multiply_along(const Form& form, Sums<Form::kTiles, Form::kWidth>& sums,
                                      const std::uint32_t (&left)[Form::kTiles][4], const T* rows) {
    const T* from = rows + along_offset(form) + form.slice;
#pragma unroll
    for (int c = 0; c < Form::kWidth / 16; ++c) {
        if (Form::kAny && form.slice + 16 * c >= form.columns()) break;
        std::uint32_t right[4];
        load_transposed(right, from + 16 * c);
#pragma unroll
        for (int m = 0; m < Form::kTiles; ++m) {
            mma16<T>(sums[m][2 * c], left[m], right[0], right[1]);
            mma16<T>(sums[m][2 * c + 1], left[m], right[2], right[3]);
        }
    }
}
/// The same with weights in registers, whose columns begin at 8 n.
template <int kColumns, class T, class Form>
__device__ inline void multiply_along(const Form& form, Sums<Form::kTiles, Form::kWidth>& sums,
                                      const Sums<Form::kTiles, kColumns>& weights, int n, const T* rows) {
    std::uint32_t left[Form::kTiles][4];
    pack_left<T>(left, weights, n);
    multiply_along(form, sums, left, rows + 8 * n * form.stride());
}

/// Writes a warp's rows of `held` that begin anywhere, four bytes per lane but at their ends; zeros from row `filled` on.
template <class Form, class T>
__device__ inline void store_pieces(const Form& form, const T* held, T* to, std::int64_t stride, int filled, int rows,
                                    int width) {
    constexpr int kLanes = Form::kWidth < 64 ? Form::kWidth / 2 : 32;  // of a row
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 4
    for (int row = lane / kLanes; row < rows; row += 32 / kLanes) {
        const auto* from = reinterpret_cast<const unsigned short*>(held + row * form.stride());
        auto* at = reinterpret_cast<unsigned short*>(to + row * stride);
        const int odd = static_cast<int>(reinterpret_cast<std::uintptr_t>(at) / 2 % 2);
        for (int d = 2 * (lane % kLanes) - odd; d < width; d += 2 * kLanes) {
            const bool first = d >= 0, second = d + 1 < width;
            const unsigned low = first && row < filled ? from[d] : 0, high = second && row < filled ? from[d + 1] : 0;
            if (first && second)
                *reinterpret_cast<std::uint32_t*>(at + d) = low | high << 16;
            else if (first)
                at[d] = static_cast<unsigned short>(low);
            else if (second)
                at[d + 1] = static_cast<unsigned short>(high);
        }
    }
}

/// Writes a warp's rows times `factor`: zeros from row `filled` on, nothing from row `rows` on. They pass through its rows and
/// columns of shared memory, `staging`, so that a lane writes whole 16 bytes. to: the head's first column.
template <class T, class Form>
__device__ inline void store_rows(const Form& form, const Sums<Form::kTiles, Form::kWidth>& sums,
                                  const RowFactors<Form::kTiles>& factor, T* staging, T* to, std::int64_t stride, int filled,
                                  int rows, int width) {
    constexpr int kVectors = Form::kWidth / 8;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < Form::kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kVectors; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (Form::kAny && form.slice + 8 * n >= form.columns()) continue;
                const float low = sums[m][n][2 * half] * factor[m][half], high = sums[m][n][2 * half + 1] * factor[m][half];
                T* at = staging + row_of(m, 2 * half) * form.stride() + column_of(n, 0);
                *reinterpret_cast<std::uint32_t*>(at) = pack<T>(low, high);
            }
    __syncwarp();
    to += form.slice;
    width -= form.slice;
    if (form.whole) {
#pragma unroll
        for (int i = threadIdx.x % 32; i < 16 * Form::kTiles * kVectors; i += 32) {
            const int row = i / kVectors, column = i % kVectors * 8;
            if (row >= rows || column >= width) continue;
            const T* held = staging + row * form.stride() + column;
            *reinterpret_cast<uint4*>(to + row * stride + column) =
                row < filled ? *reinterpret_cast<const uint4*>(held) : make_uint4(0, 0, 0, 0);
        }
    } else {
        store_pieces<Form>(form, staging, to, stride, filled, min(rows, 16 * Form::kTiles), min(width, Form::kWidth));
    }
    __syncwarp();
}

/// Whether blocks of two tiles a warp give every multiprocessor two. Otherwise there are twice as many with one tile; the results
/// are the same to the bit.
template <class T>
bool fill_device(const Context& c, const AttentionArgs<T>& a) {
    constexpr int kRows = 32 * kFlashWarps;
    return std::int64_t{a.pairs()} * a.members * ((a.shape.positions + kRows - 1) / kRows) >= 2 * c.multiprocessors;
}

/// The form with most rows of which `matrices` of own ones and tiles of at least `least` fit, and a warp for every slice of them;
/// no own ones: none does. Short sequences leave room for more blocks at once.
inline AnyForm any_form(const Context& c, const AttentionShape& shape, bool whole, int matrices, int least) {
    const int rows = shape.positions <= 32 ? 32 : 64;
    AnyForm form{rows, rows, (shape.width + 15) / 16 * 16, whole};
    const auto bytes = [&] {
        return flash_bytes(form, matrices) + 2 * sizeof(float) * static_cast<std::size_t>(std::max(form.own(), form.tile()));
    };
    while (form.own_rows > 16 && flash_threads(form) > AnyForm::kMostThreads) form.own_rows /= 2;
    if (flash_threads(form) > AnyForm::kMostThreads) return {};
    while (bytes() > c.shared_limit) {
        if (form.own_rows == 16 && form.tile_rows == least) return {};
        const bool shorter_tile = form.own_rows == 16 || (form.tile_rows >= form.own_rows && form.tile_rows > least);
        (shorter_tile ? form.tile_rows : form.own_rows) /= 2;
    }
    return form;
}

/// f<the width of the kernels that take heads of `width` columns>().
template <class F>
KernelResult with_flash_width(int width, F f) {
    return width <= 16   ? f.template operator()<16>()
           : width <= 32 ? f.template operator()<32>()
           : width <= 64 ? f.template operator()<64>()
                         : f.template operator()<128>();
}

}  // namespace millrace::ops::cuda
