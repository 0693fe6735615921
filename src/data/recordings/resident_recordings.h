#pragma once
// A set of recordings that lives in device memory as it is stored. Shuffling, scaling and masking happen inside the step.

#include <array>
#include <memory>

#include "data/batch_source.h"
#include "data/recordings/recording_set.h"
#include "data/stream/streamed_source.h"

namespace millrace::data {

struct RecordingOptions {
    std::int32_t oversample = 1;  ///< how often an epoch takes the windows of the positive class
    std::int32_t mask = 0;        ///< the most neighbouring features that are hidden from a training sample
};

class ResidentRecordings final : public ResidentSource {
public:
    /// Fields are features and label.
    explicit ResidentRecordings(std::shared_ptr<const RecordingSet> set, RecordingOptions options = {});

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;
    /// Where the features of a part lie, f16 [1, 1, windows, width], once they are declared.
    [[nodiscard]] const tensor::View& features(Part part) const { return resident_[index_of(part)].features; }
    /// Other features for the windows of a part, as many.
    void write_features(tape::Store& store, Part part, const std::vector<std::uint16_t>& features) const;

private:
    struct Resident {
        tensor::View features, labels, order;
    };
    /// Refuses a set whose training part is empty and one that is too large to be counted.
    base::Status declare_tables(tape::Store& store) override;

    std::shared_ptr<const RecordingSet> set_;
    RecordingOptions options_;
    std::array<std::int64_t, kPartCount> asked_{};  ///< rows of an epoch, also where they are too many to be ordered
    std::array<Resident, kPartCount> resident_;
    ScalingViews scaling_;
};

/// A set that has its features in files, as what is streamed: a row is the features of a window of sound in f16 and its label.
/// `mask` as RecordingOptions::mask.
StreamedSet streamed(const std::shared_ptr<const RecordingSet>& set, std::int32_t mask = 0);

}  // namespace millrace::data
