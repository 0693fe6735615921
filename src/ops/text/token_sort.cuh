#pragma once
// Tokens of a batch in ascending order of ids, those of one id in ascending order of rows. Blocks sort chunks, then rounds of
// merge_runs make one sorted run of them. Keys are unique, so the order is one whatever the schedule.

#include "ops/text/embed.cuh"

namespace millrace::ops::cuda {

/// id << 32 | number of the token. A token without a row of the table (behind its length, id outside [0, V), or made up to fill
/// the last chunk) has id V and so stands behind all others.
using TokenKey = std::uint64_t;

constexpr int kChunkBits = 10, kChunk = 1 << kChunkBits;  ///< keys that a block sorts, one for each of its threads
constexpr int kMergeRuns = 16;                            ///< sorted runs that become one in a round
constexpr int kMergeKeys = 32;                            ///< neighbouring keys that a block of a round places

__device__ inline int id_of(TokenKey key) { return static_cast<int>(key >> 32); }
__device__ inline int token_of(TokenKey key) { return static_cast<int>(key); }

/// Bitonic sort of one unique value per thread of a block of kChunk; `thread` counts them, whole warps in a row.
template <class Word>
__device__ Word sort_block(Word mine, int thread, Word (&exchange)[2][kChunk]) {
    int turn = 0;  // two buffers, so that one barrier is enough
    // Unrolled: all warps stand on one multiprocessor, so the time is that of issuing the instructions.
#pragma unroll
    for (int order = 1; order <= kChunkBits; ++order)
#pragma unroll
        for (int bit = order - 1; bit >= 0; --bit) {
            const int distance = 1 << bit;
            Word other;
            if (distance < 32) {
                other = __shfl_xor_sync(0xffffffffu, mine, distance);
            } else {
                exchange[turn][thread] = mine;
                __syncthreads();
                other = exchange[turn][thread ^ distance];
                turn ^= 1;
            }
            const bool keeps_less = (thread >> bit & 1) == (thread >> order & 1);
            mine = keeps_less ? min(mine, other) : max(mine, other);
        }
    return mine;
}

union SortMemory {
    std::uint32_t narrow[2][kChunk];
    TokenKey wide[2][kChunk];
};

/// Sorts the keys of tokens chunk * kChunk ... into keys at the same places; by a block of kChunk threads.
__device__ inline void sort_chunk(const Mat<const std::int32_t>& ids, const Mat<const std::int32_t>& lengths, int k,
                                  const EmbedShape& shape, int vocabulary, int chunk, int thread, TokenKey* keys,
                                  SortMemory& memory) {
    const int first = chunk * kChunk, token = first + thread;
    int id = vocabulary;
    if (token < shape.sequences * shape.tokens) {
        const int sequence = token / shape.tokens, t = token % shape.tokens;
        const std::int32_t named = ids.row(k, 0, sequence)[t];  // read at once: it does not wait for the length
        if (t < tokens_of(lengths, k, sequence, shape.tokens) && named >= 0 && named < vocabulary) id = named;
    }
    if (vocabulary < 1 << (32 - kChunkBits)) {
        const std::uint32_t word = sort_block(static_cast<std::uint32_t>(id) << kChunkBits | thread, thread, memory.narrow);
        keys[token] = TokenKey{word >> kChunkBits} << 32 | (first + word % kChunk);
    } else {
        keys[token] = sort_block(static_cast<TokenKey>(id) << 32 | token, thread, memory.wide);
    }
}

/// One round for kMergeKeys neighbouring keys, number `block` of the round: `count` keys stand in sorted runs of `run` keys
/// (the last may be shorter), and kMergeRuns of them at a time become one run in `to`. A key's place is the number of smaller
/// keys in all of these runs; warp y of the block counts in run y. The block has kMergeKeys x min(kMergeRuns, runs) threads.
__device__ inline void merge_runs(const TokenKey* from, TokenKey* to, int run, int count, int block) {
    __shared__ int smaller[kMergeRuns][kMergeKeys];
    const int i = block * kMergeKeys + threadIdx.x;
    const std::int64_t span = std::int64_t{run} * kMergeRuns, group = i / span * span;
    const int begin = static_cast<int>(min(group + std::int64_t{run} * threadIdx.y, std::int64_t{count}));
    const int end = static_cast<int>(min(std::int64_t{begin} + run, std::int64_t{count}));
    const TokenKey mine = from[i];
    int low = i, high = i;  // in its own run the key stands at its place already
    if (i < begin || i >= end) {
        low = begin;
        high = end;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (from[middle] < mine)
            low = middle + 1;
        else
            high = middle;
    }
    smaller[threadIdx.y][threadIdx.x] = low - begin;
    __syncthreads();
    if (threadIdx.y > 0) return;
    int place = static_cast<int>(group);
    for (int y = 0; y < static_cast<int>(blockDim.y); ++y) place += smaller[y][threadIdx.x];
    to[place] = mine;
}

}  // namespace millrace::ops::cuda
