#pragma once
// A source whose samples are read while steps run: two windows of each part are in device memory (data/stream). A row of their
// table is the input of a sample, filled up to whole words, and its answer in a word, so that one copy moves both.

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
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

/// The rows of one part of a set that is streamed: their table in device memory, and what must be there before a step.
struct StreamOptions {
    std::uint64_t window_bytes = 256 << 20;  ///< of both halves of training; validation and test get a quarter each
    int threads = 2;                         ///< that read, for each part
    std::uint64_t seed = 42;                 ///< of the order of blocks
    std::uint32_t epochs = 1;                ///< whose windows are checked
    bool training = true;                    ///< false: validation and test alone
};
/// The keys of [data] that say so.
void add_stream_keys(base::Schema& schema);
StreamOptions read_stream_options(const base::Recipe& recipe, bool training);

/// Tables of inputs and answers, of `window` rows in each half.
struct StreamedTables {
    tensor::View inputs, answers;
    std::uint32_t window = 0;
};

/// What is streamed. Its functions may be called until the source has ended.
struct StreamedSet {
    struct Rows {
        std::uint64_t count = 0, together = 1;  ///< rows of the part; those that are best read together
        /// Reads the inputs of rows [first, ...), one behind the other, as many as there is room for. From several threads at
        /// once.
        std::function<base::Status(std::uint32_t first, std::span<std::byte> inputs)> inputs = {};
        std::function<std::uint32_t(std::uint32_t row)> answer = {};  ///< the word behind an input
    };
    std::string name, unit;                                                ///< what a row is called: "segments"
    Fields fields;                                                         ///< the input, and the answer: a label, or a number
    tensor::DType input = tensor::DType::u8, answer = tensor::DType::i32;  ///< in a row
    std::array<Rows, kPartCount> parts = {};
    std::function<std::vector<tensor::View>(tape::Builder& builder, Part part, const StreamedTables& from, std::int32_t rows,
                                            std::span<const Wanted> wanted)>
        gather = {};                                              ///< as BatchSource::gather()
    std::function<void(tape::Store&)> declare = {}, upload = {};  ///< of what else it keeps on the device; may be absent
    std::string preparation = {};                                 ///< as BatchSource::preparation()
    std::vector<std::string> notes = {};                          ///< as BatchSource::notes()
};

class StreamedSource final : public BatchSource {
public:
    /// Refuses a training part without rows, windows that hold no block, and windows of one class while there are several.
    static base::Result<std::unique_ptr<StreamedSource>> create(StreamedSet set, StreamOptions options);

    [[nodiscard]] std::int32_t samples(Part part) const override {
        return static_cast<std::int32_t>(set_.parts[index_of(part)].count);
    }
    [[nodiscard]] const Fields& fields() const override { return set_.fields; }
    [[nodiscard]] std::vector<std::string> notes() const override { return set_.notes; }
    [[nodiscard]] std::string preparation() const override { return set_.preparation; }
    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
    base::Status await_rows(const RowsAhead& rows, const StepsDone& done) override;
    [[nodiscard]] std::int64_t most_rows(Part part) const override;
    [[nodiscard]] std::optional<LoaderCounts> loader_counts(std::uint32_t epoch) const override;
    [[nodiscard]] std::string loading() const override;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;
    /// The order of the windows of a part; absent where it is not streamed.
    [[nodiscard]] const WindowPlan* plan(Part part) const;

private:
    StreamedSource(StreamedSet set, StreamOptions options);
    base::Status add_part(Part part);
    base::Status check_mix();
    base::Status read_block(const StreamedSet::Rows& from, std::uint32_t first, std::span<std::byte> rows) const;

    StreamedSet set_;
    StreamOptions options_;
    std::size_t input_bytes_, answer_offset_, row_bytes_;          ///< of a row
    std::size_t groups_;                                           ///< of classes that are counted as one where there are many
    std::vector<std::uint32_t> block_counts_;                      ///< [blocks of the training part][groups]
    double deviation_ = 0;                                         ///< the largest mix_deviation of the epochs
    std::array<std::unique_ptr<StreamedRows>, kPartCount> parts_;  ///< their threads end before what they read
};

}  // namespace millrace::data
