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
    [[nodiscard]] std::vector<bool> is_in(Part part) const;  ///< of each sample
    /// As an InputReader, wherever inputs are.
    [[nodiscard]] base::Status read(std::int32_t first, std::span<std::byte> inputs) const;
    /// Calls body(first, inputs) for some samples after the other, all in their order.
    base::Status for_inputs(const std::function<void(std::int32_t first, std::span<const std::byte> inputs)>& body) const;
};

/// Sets mean and deviation of each channel over the images of the training part, in shares of 255, by exact counts. Channels
/// that are everywhere equal get deviation 1.
base::Status measure_channels(SampleSet& set);

/// Sets the checksum of inputs and answers.
base::Status sum_up(SampleSet& set);

/// Sets `targets` to what `values` become, by the mean and deviation of the training part unless preparation.target has them.
void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values);

/// Drawn anew for every training sample: rotation, shift, scale and flip composed into one resampling. Never applied to
/// evaluation.
struct Augmentation {
    bool enabled = false;
    float rotate = 15;   ///< degrees, both ways
    float shift = 0.1f;  ///< share of width and height, both ways, whole pixels
    float scale = 0.1f;  ///< 1 +- scale
    float flip = 0.5f;   ///< probability of a mirror image
};

/// Image, or vector where the set's inputs are none, and label, or target where numbers are predicted.
Fields fields_of(const SampleSet& set);

/// Refuses a set whose training part is empty, and augmentation of what are no images of bytes.
base::Status check_samples(const SampleSet& set, const Augmentation& augmentation);

/// [1,1,N,width] of the inputs, [1,1,N,1] of the answers, the order of the part; absent where the tables hold two windows of
/// `window` rows each.
struct SampleTables {
    tensor::View inputs, answers, order;
    std::uint32_t window = 0;
};
/// Appends the records that fill both fields, whichever are wanted; gives the views in the order of `wanted`.
std::vector<tensor::View> append_gather(tape::Builder& builder, const SampleSet& set, const Augmentation& augmentation, Part part,
                                        const SampleTables& from, std::int32_t rows, std::span<const Wanted> wanted);

}  // namespace millrace::data
