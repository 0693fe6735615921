#pragma once
// An image set that lives in device memory as bytes. Shuffling, gathering, augmentation and normalisation happen there, inside
// the step.

#include <array>
#include <memory>

#include "base/rank.h"
#include "data/batch_source.h"
#include "data/images/image_set.h"

namespace millrace::data {

/// Drawn anew for every training sample: rotation, shift, scale and flip composed into one resampling. Never applied to
/// evaluation.
struct Augmentation {
    bool enabled = false;
    float rotate = 15;   ///< degrees, both ways
    float shift = 0.1f;  ///< share of the side, both ways, whole pixels
    float scale = 0.1f;  ///< 1 +- scale
    float flip = 0.5f;   ///< probability of a mirror image
};

class ResidentImages final : public BatchSource {
public:
    /// `rank` says which share of the training part is this machine's.
    explicit ResidentImages(std::shared_ptr<const ImageSet> set, Augmentation augmentation = {}, base::Rank rank = {});

    [[nodiscard]] std::int32_t samples(Part part) const override { return rank_of(part).share(whole(part)); }
    /// image and label.
    [[nodiscard]] const Fields& fields() const override { return fields_; }

    /// Refuses a set whose training or test part is empty or too large, and augmentation of images that are not square.
    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    struct Resident {
        tensor::View images, labels;  ///< u8 [1,1,N,P], [1,1,N,1]
    };
    /// Samples of the part on all machines together.
    [[nodiscard]] std::int32_t whole(Part part) const { return static_cast<std::int32_t>(order_[index_of(part)].size()); }
    [[nodiscard]] base::Rank rank_of(Part part) const { return part == Part::train ? rank_ : base::Rank{}; }
    [[nodiscard]] const LabeledImages& images_of(Part part) const { return part == Part::test ? set_->test : set_->train; }
    [[nodiscard]] const Resident& resident_of(Part part) const { return part == Part::test ? test_ : train_; }

    std::shared_ptr<const ImageSet> set_;
    Augmentation augmentation_;
    base::Rank rank_;
    Fields fields_;
    Resident train_, test_;
    std::array<std::vector<std::int32_t>, kPartCount> order_;  ///< positions in the part's images
    std::array<tensor::View, kPartCount> subset_;              ///< the same on the device, i32 [1,1,samples,1]
};

}  // namespace millrace::data
