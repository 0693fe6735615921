#pragma once
// A set of recordings that lives in device memory as it is stored. Shuffling, scaling and masking happen inside the step.

#include <array>
#include <memory>

#include "base/rank.h"
#include "data/recordings/recording_set.h"

namespace millrace::data {

struct RecordingOptions {
    std::int32_t oversample = 1;  ///< how often an epoch takes the windows of the positive class
    std::int32_t mask = 0;        ///< the most neighbouring features that are hidden from a training sample
};

class ResidentRecordings final : public BatchSource {
public:
    /// `rank` says which share of the training part is this machine's.
    explicit ResidentRecordings(std::shared_ptr<const RecordingSet> set, RecordingOptions options = {}, base::Rank rank = {});

    [[nodiscard]] std::int32_t samples(Part part) const override { return rank_of(part).share(whole(part)); }
    [[nodiscard]] const Fields& fields() const override { return fields_; }  ///< features and label

    /// Refuses a set whose training part is empty and one that is too large to be counted.
    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
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
    [[nodiscard]] std::int32_t whole(Part part) const { return static_cast<std::int32_t>(order_[index_of(part)].size()); }
    [[nodiscard]] base::Rank rank_of(Part part) const { return part == Part::train ? rank_ : base::Rank{}; }

    std::shared_ptr<const RecordingSet> set_;
    RecordingOptions options_;
    base::Rank rank_;
    Fields fields_;
    std::array<std::vector<std::int32_t>, kPartCount> order_;  ///< rows of the part's features; of the positive class repeatedly
    std::array<std::int64_t, kPartCount> asked_{};             ///< rows of an epoch, also where they are too many to be ordered
    std::array<Resident, kPartCount> resident_;
    ScalingViews scaling_;
};

}  // namespace millrace::data
