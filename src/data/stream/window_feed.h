#pragma once
// Keeps two windows of a streamed set in device memory: one that steps read and the next one, which threads fill meanwhile.
//
// Windows are numbered over the whole run, epoch after epoch; number n lies in half n % 2. Threads read blocks into memory of
// their own that the device can copy from, and copy them on queues of their own. Half n % 2 is filled with window n + 2 when the
// device is done with all steps that read window n.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"

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

/// The order in which a set that does not fit into device memory is read. Blocks of rows come in an order of their own each
/// epoch, common to all members; `window_blocks` blocks at a time are a window, and each member draws its own order inside a
/// window (ops::window_row). The order depends on seed and epoch alone, so position and epoch are all that a resumed run needs.
/// Fills in the rows of a block. From several threads at once.
using ReadBlock = std::function<base::Status(std::uint32_t block, std::span<std::byte> rows)>;

struct FeedOptions {
    WindowPlan plan;
    std::size_t row_bytes = 1;
    int threads = 2;
    std::uint64_t end = std::numeric_limits<std::uint64_t>::max();  ///< windows from this number on are never read
    ReadBlock read = {};
};

class WindowFeed {
public:
    /// `table` is device memory for two windows. Threads wait until begin().
    static base::Result<std::unique_ptr<WindowFeed>> create(ops::Backend& backend, std::byte* table, FeedOptions options);
    ~WindowFeed();
    WindowFeed(const WindowFeed&) = delete;
    WindowFeed& operator=(const WindowFeed&) = delete;

    /// Reading begins, or begins anew, with window `number`. The device must be done with everything that reads the table.
    void begin(std::uint64_t number);
    /// Whether window `number` is there, after at most `patience`. Numbers never fall between two begins. The first error of a
    /// reader comes here.
    base::Result<bool> wait_for(std::uint64_t number, std::chrono::microseconds patience);
    /// No step that reads a window below `number` is under way any more: their halves may be filled again.
    void release_below(std::uint64_t number);
    /// That were copied to the device since the feed was made.
    [[nodiscard]] std::uint64_t bytes() const;

private:
    struct Task {
        std::uint64_t number = 0;
        std::uint32_t block = 0, position = 0;  ///< the latter in the window
    };
    WindowFeed(std::byte* table, FeedOptions options) : table_(table), options_(std::move(options)) {}
    void work(ops::Uploader& uploader, ops::Memory& staging);
    base::Status move_block(const Task& task, ops::Uploader& uploader, ops::Memory& staging) const;
    [[nodiscard]] std::size_t bytes_of(const Task& task) const;
    /// Adds the blocks of windows that may be read now. Under the lock.
    void plan_ahead();

    std::byte* table_;
    FeedOptions options_;
    std::vector<std::unique_ptr<ops::Uploader>> uploaders_;  ///< of each thread
    std::vector<std::unique_ptr<ops::Memory>> staging_;
    mutable std::mutex mutex_;  ///< guards what follows, but the threads
    std::condition_variable tasks_, windows_;
    std::deque<Task> waiting_;
    std::uint64_t planned_ = 0, released_ = 0;  ///< windows below these were planned, may be overwritten
    std::uint32_t missing_[2] = {};             ///< blocks still to come of the windows of both halves
    int busy_ = 0;                              ///< threads that move a block
    bool ending_ = false;
    base::Status status_ = base::ok();
    std::uint64_t bytes_ = 0;
    std::vector<std::jthread> threads_;
};

}  // namespace millrace::data
