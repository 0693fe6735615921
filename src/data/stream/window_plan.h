#pragma once
// The order in which a set that does not fit into device memory is read. Blocks of rows come in an order of their own each epoch,
// common to all members; `window_blocks` blocks at a time are a window, and each member draws its own order inside a window
// (ops::window_row). The order depends on seed and epoch alone, so position and epoch are all that a resumed run needs.

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::data {

struct WindowPlan {
    std::uint64_t seed = 0;
    std::uint32_t rows = 0;           ///< of the set
    std::uint32_t block_rows = 1;     ///< of a block; the last one may have fewer and always comes last
    std::uint32_t window_blocks = 1;  ///< of a window; the last one of an epoch may have fewer
    bool shuffle = true;              ///< false: blocks in the order of the file, as evaluation takes them

    [[nodiscard]] std::uint32_t blocks() const { return rows / block_rows + (rows % block_rows != 0 ? 1 : 0); }
    [[nodiscard]] std::uint32_t window_rows() const { return block_rows * window_blocks; }
    [[nodiscard]] std::uint32_t windows() const;  ///< of an epoch
    [[nodiscard]] std::uint32_t rows_of_block(std::uint32_t block) const;
    /// The blocks of window `window` of an epoch, in the order in which they lie in it.
    [[nodiscard]] std::vector<std::uint32_t> blocks_of(std::uint32_t epoch, std::uint32_t window) const;
    /// Sets window_blocks to at most `most` (at least 1), so that the windows of an epoch are about equally long.
    void divide(std::uint32_t most);
};

/// How well the windows of an epoch stand for the set.
struct WindowMix {
    double deviation = 0;            ///< the largest difference of a class's share in a window and in the set, 0 to 1
    std::uint32_t of_one_class = 0;  ///< windows that hold rows of one class alone, though the set has several
};

/// `counts` [blocks][classes] are the rows of each class in each block.
WindowMix mix_of(const WindowPlan& plan, std::uint32_t epoch, std::span<const std::uint32_t> counts, std::size_t classes);

}  // namespace millrace::data
