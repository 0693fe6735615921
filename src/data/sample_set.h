#pragma once
// Samples of one input and one answer each, as they lie in memory, ready to be put on a device.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/preparation.h"

namespace millrace::data {

struct SampleSet {
    std::string name;
    std::string unit = "samples";  ///< what a sample is called: "images", "rows"
    Preparation preparation;
    std::int32_t count = 0, width = 0;    ///< samples, and elements of an input
    std::span<const std::uint8_t> bytes;  ///< inputs [count, width] of images; none: `numbers` has them
    std::shared_ptr<const void> owner;    ///< of `bytes`
    std::vector<float> numbers;           ///< inputs [count, width] as the model reads them
    std::vector<std::int32_t> labels;     ///< [count] below preparation.classes; none: `targets` has the answers
    std::vector<float> targets;           ///< [count] as the model predicts them
    std::array<std::vector<std::int32_t>, kPartCount> parts;  ///< samples of each
    std::uint64_t checksum = 0;
    std::vector<std::string> notes = {};  ///< for people, a line each

    [[nodiscard]] bool classifies() const { return preparation.classes > 0; }
    [[nodiscard]] std::vector<std::int32_t>& part(Part part) { return parts[index_of(part)]; }
    [[nodiscard]] const std::vector<std::int32_t>& part(Part part) const { return parts[index_of(part)]; }
    void own(std::vector<std::uint8_t> values);  ///< makes them `bytes`
};

/// Sets mean and deviation of each channel over the images of the training part, in shares of 255, by exact counts. Channels
/// that are everywhere equal get deviation 1.
void measure_channels(SampleSet& set);

/// Sets `targets` to what `values` become, by the mean and deviation of the training part unless preparation.target has them.
void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values);

}  // namespace millrace::data
