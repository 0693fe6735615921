#pragma once
// An image set that lives in device memory as bytes. Shuffling, gathering, augmentation and normalisation happen there, inside
// the step.

#include <array>
#include <memory>

#include "data/images/image_set.h"
#include "data/resident_source.h"

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

class ResidentImages final : public ResidentSource {
public:
    /// Fields are image and label.
    explicit ResidentImages(std::shared_ptr<const ImageSet> set, Augmentation augmentation = {}, base::Rank rank = {});

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    struct Resident {
        tensor::View images, labels;  ///< u8 [1,1,N,P], [1,1,N,1]
    };
    /// Refuses a set whose training or test part is empty or too large, and augmentation of images that are not square.
    base::Status declare_tables(tape::Store& store) override;

    std::shared_ptr<const ImageSet> set_;
    Augmentation augmentation_;
    Resident train_, test_;
    std::array<tensor::View, kPartCount> subset_;  ///< order_ on the device
};

}  // namespace millrace::data
