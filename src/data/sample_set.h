#pragma once
// Samples of one input and one answer each, ready to be put on a device. Answers lie in memory; inputs do, or stay in files.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/preparation.h"

namespace millrace::data {

/// Reads the inputs of sample `first` and those that follow it, as many as `inputs` holds. From several threads at once.
using InputReader = std::function<base::Status(std::int32_t first, std::span<std::byte> inputs)>;

struct SampleSet {
    std::string name;
    std::string unit = "samples";  ///< what a sample is called: "images", "rows"
    Preparation preparation;
    std::int32_t count = 0, width = 0;  ///< samples, and elements of an input
    std::vector<std::uint8_t> bytes;    ///< inputs [count, width] of images
    std::vector<float> numbers;         ///< inputs [count, width] of what is no image, as the model reads them
    InputReader reader;                 ///< inputs that stay in files, the same; the two above are empty then
    std::vector<std::int32_t> labels;   ///< [count] below preparation.classes; none: `targets` has the answers
    std::vector<float> targets;         ///< [count] as the model predicts them
    std::array<std::vector<std::int32_t>, kPartCount> parts;  ///< samples of each
    std::uint64_t checksum = 0;
    std::vector<std::string> notes = {};  ///< for people, a line each

    [[nodiscard]] bool classifies() const { return preparation.classes > 0; }
    [[nodiscard]] std::vector<std::int32_t>& part(Part part) { return parts[index_of(part)]; }
    [[nodiscard]] const std::vector<std::int32_t>& part(Part part) const { return parts[index_of(part)]; }
    [[nodiscard]] bool has_images() const { return !bytes.empty() || (reader && preparation.shape.size() > 0); }
    /// Bytes of an input: u8 of images, else f32.
    [[nodiscard]] std::size_t input_bytes() const {
        return static_cast<std::size_t>(width) * (has_images() ? sizeof(std::uint8_t) : sizeof(float));
    }
    /// As an InputReader, wherever inputs are.
    [[nodiscard]] base::Status read(std::int32_t first, std::span<std::byte> inputs) const;
    /// Calls body(first, inputs) for some samples after the other, all in their order.
    base::Status for_inputs(const std::function<void(std::int32_t first, std::span<const std::byte> inputs)>& body) const;
    /// Of a classification: samples of each class in a part.
    [[nodiscard]] std::vector<std::int64_t> class_counts(Part part) const;
};

/// Sets mean and deviation of each channel over the images of the training part, in shares of 255, by exact counts. Channels
/// that are everywhere equal get deviation 1.
base::Status measure_channels(SampleSet& set);

/// Sets the checksum of inputs and answers.
base::Status sum_up(SampleSet& set);

/// Sets `targets` to what `values` become, by the mean and deviation of the training part unless preparation.target has them.
void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values);

}  // namespace millrace::data
