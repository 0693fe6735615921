#pragma once
// Samples as sources: in device memory, or streamed from wherever their inputs are. Shuffling, gathering, augmentation and
// normalisation of images happen on the device, inside the step.

#include <array>
#include <memory>

#include "data/batch_source.h"
#include "data/sample_set.h"
#include "data/stream/streamed_source.h"

namespace millrace::data {

/// Drawn anew for every training sample: rotation, shift, scale and flip composed into one resampling. Never applied to
/// evaluation.
struct Augmentation {
    bool enabled = false;
    float rotate = 15;   ///< degrees, both ways
    float shift = 0.1f;  ///< share of width and height, both ways, whole pixels
    float scale = 0.1f;  ///< 1 +- scale
    float flip = 0.5f;   ///< probability of a mirror image
};

class ResidentSamples final : public ResidentSource {
public:
    /// Fields are image, or vector where the set's inputs are none, and label, or target where numbers are predicted.
    explicit ResidentSamples(std::shared_ptr<const SampleSet> set, Augmentation augmentation = {});

    [[nodiscard]] std::vector<std::string> notes() const override { return set_->notes; }
    [[nodiscard]] std::string preparation() const override { return encode(set_->preparation); }
    [[nodiscard]] const SampleSet& set() const { return *set_; }

    base::Status upload(tape::Store& store) override;
    /// Replaces the first inputs of the set on the device, all of which has been launched before.
    void write_inputs(tape::Store& store, const InputRows& rows) const;

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    /// Refuses a set whose training part is empty, and augmentation of what are no images of bytes.
    base::Status declare_tables(tape::Store& store) override;
    std::shared_ptr<const SampleSet> set_;
    Augmentation augmentation_;
    std::array<tensor::View, 2> tables_;           ///< [1,1,N,width] of the inputs, [1,1,N,1] of the answers
    std::array<tensor::View, kPartCount> subset_;  ///< order_ on the device
};

/// The set as what is streamed: a row is an input, u8 of images and else f32, and its label or target. Training reads neighbours
/// together, in an order of `seed`, so that windows mix what lies sorted; evaluation reads a part in its order. Refuses what
/// ResidentSamples does.
base::Result<StreamedSet> streamed(const std::shared_ptr<const SampleSet>& set, const Augmentation& augmentation,
                                   std::uint64_t seed);

/// `count` samples of nothing, the test part, whose inputs write_inputs() replaces.
std::unique_ptr<ResidentSamples> placeholders(const Preparation& prepared, std::int32_t count);

}  // namespace millrace::data
