#pragma once
// A set of recordings that stays in its files: windows of it are in device memory, two at a time (data/stream). A row of a table
// is the features of a window of sound in f16, filled up to whole words, and its label in i32, so that one copy moves both.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/recordings/recording_set.h"
#include "data/stream/streamed_rows.h"

namespace millrace::data {

struct StreamOptions {
    std::uint64_t window_bytes = std::uint64_t{256}
                                 << 20;  ///< of both halves of training; validation and test get a quarter each
    int threads = 2;                     ///< that read, for each part
    std::uint64_t seed = 42;             ///< of the order of blocks
    std::uint32_t epochs = 1;            ///< whose windows are checked
    bool training = true;                ///< false: validation and test alone
    std::int32_t mask = 0;               ///< as RecordingOptions::mask
};

class StreamedRecordings final : public BatchSource {
public:
    /// `set` has its features in files. Refuses windows that hold no block, and windows of one class while there are several.
    static base::Result<std::unique_ptr<StreamedRecordings>> create(std::shared_ptr<const RecordingSet> set,
                                                                    StreamOptions options);

    [[nodiscard]] std::int32_t samples(Part part) const override { return set_->part(part).count * set_->windows; }
    [[nodiscard]] const Fields& fields() const override { return fields_; }  ///< features and label

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
    StreamedRecordings(std::shared_ptr<const RecordingSet> set, StreamOptions options);
    base::Status add_part(Part part);
    base::Status check_mix();
    base::Status read_block(Part part, std::uint32_t first, std::span<std::byte> rows) const;

    std::shared_ptr<const RecordingSet> set_;
    StreamOptions options_;
    Fields fields_;
    std::size_t label_offset_, row_bytes_;  ///< bytes of a row
    std::array<std::unique_ptr<StreamedRows>, kPartCount> parts_;
    std::vector<std::uint32_t> block_counts_;  ///< [blocks of the training part][classes]
    double deviation_ = 0;                     ///< the largest mix_deviation of the epochs
    ScalingViews scaling_;
};

}  // namespace millrace::data
