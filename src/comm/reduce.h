#pragma once
#include <cstddef>
#include <vector>

#include "comm/group.h"

namespace millrace::comm {

/// Sums arrays of floats over the ranks in rank order, ((0 + x0) + x1) + ...: the same bits on every rank and in every run. Each
/// rank receives its piece of all arrays, sums it, and the sums are gathered: the bytes of an all-reduce.
class OrderedSum {
public:
    /// For arrays of at most `most` floats; holds the memory that calls need. `group` outlives it.
    OrderedSum(Group& group, std::size_t most);

    /// `data` [count] becomes the sum over all ranks. Allocates nothing.
    base::Status reduce(float* data, std::size_t count);

private:
    base::Status reduce_by_pieces(float* data, std::size_t piece);
    base::Status reduce_whole(float* data, std::size_t count);

    Group& group_;
    std::vector<float> received_;
};

}  // namespace millrace::comm
