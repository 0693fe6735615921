#pragma once
// Samples of one input and one answer each, ready to be put on a device. Answers lie in memory; inputs do, or stay in files.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch_source.h"
#include "data/fields.h"
#include "data/folder.h"

namespace millrace::data {

/// A column of a table: a number, or one of some words.
struct Column {
    std::string name;
    bool category = false;
    std::vector<std::string> words = {};  ///< word i becomes number i + 1; any other, and a missing one, number 0
    double mean = 0, deviation = 1;       ///< of a number; a missing one becomes the mean

    /// Numbers that it becomes: one, or for a category one for each word and one for those never seen.
    [[nodiscard]] std::size_t width() const { return category ? words.size() + 1 : 1; }
    bool operator==(const Column&) const = default;
};

/// A number that is predicted: a model predicts (number - mean) / deviation.
struct Target {
    std::string name;
    double mean = 0, deviation = 1;
    bool operator==(const Target&) const = default;
};

/// How raw data becomes numbers that a model reads: decided by the data of training, kept in checkpoints, and used again on all
/// other data.
struct Preparation {
    Shape shape;                   ///< of images
    std::string resize;            ///< of pictures: "fit" or "crop"
    std::vector<float> mean = {};  ///< of images by channel, in shares of 255 where they are bytes; of arrays by column
    std::vector<float> deviation = {};
    std::vector<Column> columns = {};           ///< of a table
    std::string answer = {};                    ///< name of the column of classes or of the target, where it has one
    std::int32_t classes = 0;                   ///< 0: a number is predicted
    std::vector<std::string> class_names = {};  ///< one for each class, or none
    std::optional<Target> target = {};

    /// Elements of an input.
    [[nodiscard]] std::size_t width() const;
    bool operator==(const Preparation&) const = default;
};

/// JSON.
std::string encode(const Preparation& preparation);
/// Refuses what encode() cannot have given; `place` names the text in errors.
base::Result<Preparation> decode_preparation(const std::string& text, const std::string& place);

/// Those of classes whose names are `names`: the number of each, by the stored names where there are some. Refuses a name that
/// the stored ones lack.
base::Result<std::vector<std::int32_t>> number_classes(const std::vector<std::string>& names, const Preparation& stored,
                                                       const std::string& place);

/// Reads the inputs of sample `first` and those that follow it, as many as `inputs` holds. From several threads at once.
using InputReader = std::function<base::Status(std::int32_t first, std::span<std::byte> inputs)>;

using Parts = std::array<std::vector<std::int32_t>, kPartCount>;  ///< samples of each

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
    Parts parts;
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

/// Mean and standard deviation.
struct Moments {
    double mean = 0, deviation = 1;
};
/// Of bytes in shares of 255, by how often each is there.
Moments moments_of(const std::array<std::uint64_t, 256>& histogram);

/// Sets mean and deviation of each channel over the images of the training part, in shares of 255, by exact counts. Channels
/// that are everywhere equal get deviation 1.
base::Status measure_channels(SampleSet& set);

/// Sets the checksum of inputs and answers.
base::Status sum_up(SampleSet& set);

/// Sets `targets` to what `values` become, by the mean and deviation of the training part unless preparation.target has them.
void scale_targets(SampleSet& set, const std::string& name, const std::vector<double>& values);

/// What a recipe, and a checkpoint where there is one, ask of samples.
struct SampleRequest {
    Path path;
    double validation = 0.1, test = 0.1;  ///< shares of what has no parts of its own
    std::uint64_t seed = 42;              ///< of the parts
    std::string size = {}, resize = "fit", colour = "auto";
    std::string target = {}, task = "auto", ignore = {};
    const Preparation* stored = nullptr;  ///< of a checkpoint; null: the data decides
};

/// Adds samples [first, first + count) to the parts by the random order of (`seed`, epoch 0): the first floor(count * test) test,
/// the next floor(count * validation) validate, the rest train.
void split_samples(Parts& parts, std::int32_t first, std::int32_t count, double validation, double test, std::uint64_t seed);

/// The samples of one file after the other, and the part that each file is for. What is for training is split by request's
/// shares, but for a part that has a file of its own, and for no test where there are several files.
void add_files(SampleSet& set, const std::vector<std::pair<Part, std::int32_t>>& counts, const SampleRequest& request);

/// What folders and files of a part are called.
inline constexpr std::pair<const char*, Part> kPartNames[] = {{"train", Part::train},
                                                              {"valid", Part::validation},
                                                              {"validation", Part::validation},
                                                              {"val", Part::validation},
                                                              {"test", Part::test}};

/// The part of a sample that is known by its name alone: which others there are does not matter.
Part part_of_name(std::string_view name, const SampleRequest& request);

/// Inputs of some samples as a model reads them.
struct InputRows {
    std::vector<std::uint8_t> bytes;                     ///< [rows, width] of images; none: `numbers` has them
    std::vector<float> numbers;                          ///< [rows, width]
    std::map<std::size_t, std::string> unreadable = {};  ///< by row: why; what stands there has no meaning
};

/// Samples without their answers, in their order, for a trained model to predict, prepared as its training data was. Rows are
/// made when they are asked for.
struct Inputs {
    std::string unit;  ///< what a sample is called: "pictures", "rows"
    std::int64_t count = 0;
    std::vector<std::string> names = {};  ///< of each sample; empty: they have numbers alone
    std::function<Result<InputRows>(std::int64_t first, std::int64_t count)> read = {};
};

}  // namespace millrace::data
