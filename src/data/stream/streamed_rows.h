#pragma once
// The rows of one part of a set that is streamed: their table in device memory, and what must be there before a step.

#include <deque>
#include <memory>
#include <string>

#include "data/batch_source.h"
#include "data/stream/window_feed.h"

namespace millrace::data {

/// The store it was started with outlives it: its threads write into the table.
class StreamedRows {
public:
    /// `training`: windows are numbered over the whole run, else over each pass.
    StreamedRows(WindowPlan plan, std::size_t row_bytes, int threads, bool training, ReadBlock read);

    /// Declares the table u8 [1,1,2 * window_rows,row_bytes].
    void declare(tape::Store& store, std::string name);
    /// After Store::allocate(): makes the threads, which read nothing before the first await(). Until then the table holds zeros,
    /// which programs that run before the first step may gather.
    base::Status start(tape::Store& store);
    /// Returns when all rows are in the table; with rows.prefetch at once. `rows` begins where the rows before ended, or the
    /// device is done with all steps.
    base::Status await(const RowsAhead& rows, const StepsDone& done);

    [[nodiscard]] const WindowPlan& plan() const { return options_.plan; }
    [[nodiscard]] const tensor::View& table() const { return table_; }
    /// Rows that one step may read: a step sees two windows at most.
    [[nodiscard]] std::int64_t most_rows() const {
        return plan().windows() == 1 ? std::numeric_limits<std::int64_t>::max() : std::int64_t{plan().window_rows()};
    }
    /// Moved to the device so far.
    [[nodiscard]] std::uint64_t bytes() const { return feed_ ? feed_->bytes() : 0; }

private:
    /// Windows below `window` are free when the steps before `step` are done.
    struct Release {
        std::uint64_t step = 0, window = 0;
    };
    base::Status release(const StepsDone& done);

    FeedOptions options_;
    bool training_;
    tensor::View table_;
    std::unique_ptr<WindowFeed> feed_;
    bool begun_ = false;
    std::uint64_t first_ = 0, last_ = 0;  ///< windows of the rows that were awaited last
    std::deque<Release> releases_;
};

}  // namespace millrace::data
