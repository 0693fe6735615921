#pragma once
// Samples that live in device memory.

#include <array>
#include <memory>

#include "data/images/image_set.h"
#include "data/resident_source.h"
#include "data/sample_set.h"

namespace millrace::data {

class ResidentSamples final : public ResidentSource {
public:
    explicit ResidentSamples(std::shared_ptr<const SampleSet> set, Augmentation augmentation = {});
    explicit ResidentSamples(const std::shared_ptr<const ImageSet>& set, Augmentation augmentation = {})
        : ResidentSamples(std::make_shared<const SampleSet>(samples_of(*set)), augmentation) {}

    [[nodiscard]] std::vector<std::string> notes() const override { return set_->notes; }
    [[nodiscard]] std::string preparation() const override { return encode(set_->preparation); }
    [[nodiscard]] const SampleSet& set() const { return *set_; }

    base::Status upload(tape::Store& store) override;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    /// As check_samples().
    base::Status declare_tables(tape::Store& store) override;
    std::shared_ptr<const SampleSet> set_;
    Augmentation augmentation_;
    std::array<tensor::View, 2> tables_;           ///< [1,1,N,width] of the inputs, [1,1,N,1] of the answers
    std::array<tensor::View, kPartCount> subset_;  ///< order_ on the device
};

}  // namespace millrace::data
