#pragma once
// The tokens of a share of all ids, by one block: in ascending order of ids, those of one id in ascending order of their numbers.
// A block looks at the ids of all tokens, which takes less time than launches that sort them. Neighbouring ids, which are often
// frequent together, are in different shares.

#include <cub/block/block_scan.cuh>

#include "ops/text/embed.cuh"

namespace millrace::ops::cuda {

constexpr int kGroups = 16;  ///< blocks are kLanes x kGroups
constexpr int kShareThreads = kLanes * kGroups, kShareWarps = kShareThreads / 32;
constexpr int kMostIds = 4 * kShareThreads;  ///< of a share
constexpr int kListed = 512;                 ///< tokens that shared memory holds; where a share has more, all are in the scratch

struct Token {
    std::int32_t id, number;  ///< number: sequence * tokens + t
};

/// Ids are in 2^bits shares, by their lowest bits.
struct SharedIds {
    Mat<const std::int32_t> ids, lengths;
    EmbedShape shape;
    int vocabulary, bits;

    __host__ __device__ int tokens() const { return shape.sequences * shape.tokens; }
    __host__ __device__ int shares() const { return 1 << bits; }
    /// How many ids a share has; it has number share + (i << bits).
    __device__ int ids_of(int share) const { return (vocabulary - share + shares() - 1) >> bits; }
    /// Negative: not in the share, which is so for a token behind its length and an id outside [0, V).
    __device__ int number_in(int share, int id) const { return id >= 0 && share_of(id) == share ? id >> bits : -1; }
    __device__ int share_of(int id) const { return id & (shares() - 1); }
};

struct ShareMemory {
    using Scan = cub::BlockScan<int, kLanes, cub::BLOCK_SCAN_WARP_SCANS, kGroups>;
    typename Scan::TempStorage scan;
    int counts[kMostIds], places[kMostIds];  ///< of an id's tokens: how many, where the next one goes
    int found[kShareWarps], earlier[kShareWarps];
    Token listed[kListed], sorted[kListed];
};

/// f(number, id) for a warp's part of the tokens of member k, by all its lanes with neighbouring tokens; id is negative where
/// there is none.
template <class F>
__device__ void for_tokens(const SharedIds& a, int k, int warp, int lane, F f) {
    constexpr int kBatch = 8;  // loads under way at once
    const int part = (a.tokens() + 32 * kShareWarps - 1) / (32 * kShareWarps) * 32, begin = warp * part,
              end = min(a.tokens(), begin + part);
    if (begin >= end) return;
    int sequence = (begin + lane) / a.shape.tokens, t = (begin + lane) % a.shape.tokens;
    for (int first = begin + lane; first - lane < end; first += 32 * kBatch) {
        int id[kBatch], at[kBatch], length[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const bool exists = first + 32 * i < end;
            at[i] = t;
            id[i] = exists ? a.ids.row(k, 0, sequence)[t] : -1;  // read at once: it does not wait for the length
            length[i] = exists ? *a.lengths.row(k, 0, sequence) : 0;
            for (t += 32; t >= a.shape.tokens; t -= a.shape.tokens) ++sequence;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) f(first + 32 * i, at[i] < length[i] && id[i] < a.vocabulary ? id[i] : -1);
    }
}

/// Sorts listed tokens by one warp; places[n] is where those of the share's id number n begin.
__device__ inline void place_tokens(const SharedIds& a, int count, int lane, const Token* listed, int* places, Token* sorted) {
    const unsigned before = (1u << lane) - 1;
    for (int i = lane; i - lane < count; i += 32) {
        const Token token = i < count ? listed[i] : Token{-1, 0};
        const unsigned same = __match_any_sync(0xffffffffu, token.id);
        int* next = places + (i < count ? token.id >> a.bits : 0);
        const int place = *next + __popc(same & before);
        __syncwarp();
        if (i < count) sorted[place] = token;
        if (i < count && (same & before) == 0) *next = place + __popc(same);
        __syncwarp();
    }
}

/// The sorted tokens of member k and a share, by a whole block; returns how many. scratch: [2][tokens()], of the shares that have
/// the same one. Reads ids and lengths and writes the scratch alone.
__device__ inline int sort_share(const SharedIds& a, int k, int share, Token* scratch, ShareMemory& m, const Token*& sorted) {
    const int thread = threadIdx.y * kLanes + threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (int i = thread; i < kMostIds; i += kShareThreads) m.counts[i] = 0;
    __syncthreads();
    int found = 0, earlier = 0;  // tokens of this share, of those before it
    for_tokens(a, k, warp, lane, [&](int, int id) {
        const int number = a.number_in(share, id);
        if (number >= 0) atomicAdd(&m.counts[number], 1);
        found += __popc(__ballot_sync(0xffffffffu, number >= 0));
        earlier += __popc(__ballot_sync(0xffffffffu, id >= 0 && a.share_of(id) < share));
    });
    if (lane == 0) {
        m.found[warp] = found;
        m.earlier[warp] = earlier;
    }
    __syncthreads();
    int count = 0, at = 0, begin = 0;
    for (int w = 0; w < kShareWarps; ++w) {
        if (w == warp) at = count;
        count += m.found[w];
        begin += m.earlier[w];
    }
    Token *listed = count <= kListed ? m.listed : scratch + begin,
          *to = count <= kListed ? m.sorted : scratch + a.tokens() + begin;
    for_tokens(a, k, warp, lane, [&](int number, int id) {
        const bool mine = a.number_in(share, id) >= 0;
        const unsigned all = __ballot_sync(0xffffffffu, mine);
        if (mine) listed[at + __popc(all & ((1u << lane) - 1))] = {id, number};
        at += __popc(all);
    });
    int counts[kMostIds / kShareThreads];
    for (int i = 0; i < kMostIds / kShareThreads; ++i) counts[i] = m.counts[thread * (kMostIds / kShareThreads) + i];
    ShareMemory::Scan(m.scan).ExclusiveSum(counts, counts);
    for (int i = 0; i < kMostIds / kShareThreads; ++i) m.places[thread * (kMostIds / kShareThreads) + i] = counts[i];
    __syncthreads();
    if (warp == 0) place_tokens(a, count, lane, listed, m.places, to);
    __syncthreads();
    sorted = to;
    return count;
}

}  // namespace millrace::ops::cuda
