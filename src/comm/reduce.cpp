#include "comm/reduce.h"

#include <algorithm>

namespace millrace::comm {
namespace {

/// Up to so many floats by the square of the ranks, each receives everything and sums it all: one message instead of two, but
/// (D - 1) (D - 2) / D times the array more. On a host of two cores that took less time to 128 KiB on 2 ranks, to 64 KiB on 3 and
/// to 32 KiB on 4.
constexpr std::size_t kWhole = std::size_t{1} << 17;
/// Floats that a rank receives at a time: they are summed while they are in the cache.
constexpr std::size_t kMostReceived = std::size_t{1} << 18;

/// out[i] = ((0 + x[0][i]) + x[1][i]) + ..., x [ranks, count]; `out` does not overlap x. Beginning with 0 makes -0 a 0.
void sum_rows(const float* x, std::size_t ranks, std::size_t count, float* __restrict out) {
    if (ranks == 1) {
        std::copy_n(x, count, out);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) out[i] = (0.0f + x[i]) + x[count + i];
    for (std::size_t rank = 2; rank < ranks; ++rank) {
        const float* row = x + rank * count;
        for (std::size_t i = 0; i < count; ++i) out[i] += row[i];
    }
}

/// The longest array that is summed whole. What pieces of equal length leave over is shorter than `ranks`.
std::size_t longest_whole(std::size_t ranks) { return std::max(kWhole / (ranks * ranks), ranks); }

}  // namespace

OrderedSum::OrderedSum(Group& group, std::size_t most) : group_(group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t by_pieces = std::min(most, kMostReceived);
    const std::size_t whole = ranks * std::min(most, longest_whole(ranks));
    if (ranks > 1) received_.resize(std::max(by_pieces, whole));
}

base::Status OrderedSum::reduce(float* data, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    if (ranks == 1) return base::ok();
    while (count > longest_whole(ranks)) {
        const std::size_t piece = std::min(count, kMostReceived) / ranks;
        MILLRACE_TRY(reduce_by_pieces(data, piece));
        data += ranks * piece;
        count -= ranks * piece;
    }
    return count == 0 ? base::ok() : reduce_whole(data, count);
}

base::Status OrderedSum::reduce_by_pieces(float* data, std::size_t piece) {
    const auto ranks = static_cast<std::size_t>(group_.size());
    float* own = data + static_cast<std::size_t>(group_.rank()) * piece;
    MILLRACE_TRY(group_.all_to_all(data, received_.data(), piece * sizeof(float)));
    sum_rows(received_.data(), ranks, piece, own);
    return group_.all_gather(own, data, piece * sizeof(float));
}

base::Status OrderedSum::reduce_whole(float* data, std::size_t count) {
    MILLRACE_TRY(group_.all_gather(data, received_.data(), count * sizeof(float)));
    sum_rows(received_.data(), static_cast<std::size_t>(group_.size()), count, data);
    return base::ok();
}

}  // namespace millrace::comm
