#pragma once
// A folder with the four files of an MNIST-like data set and, beside them, an optional dataset.json
// {"name": "garments", "mean": 0.21, "std": 0.27, "classes": 10, "class_names": ["T-shirt/top", ...]} (each key optional).

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/idx.h"
#include "data/inputs.h"
#include "data/sample_set.h"
#include "data/split.h"

namespace millrace::data {

inline constexpr const char* kTrainImages = "train-images-idx3-ubyte";
inline constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
inline constexpr const char* kTestImages = "t10k-images-idx3-ubyte";
inline constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte";

struct LabeledImages {
    std::uint32_t count = 0;
    std::uint32_t rows = 0;
    std::uint32_t columns = 0;
    std::vector<std::uint8_t> pixels;  ///< [count, rows, columns]
    std::vector<std::uint8_t> labels;  ///< [count], each below the number of classes
};

/// Mean and standard deviation of pixel / 255.
struct PixelStatistics {
    double mean = 0;
    double deviation = 1;
};

/// Over the images at `indices`, by an exact histogram.
PixelStatistics measure_pixels(const LabeledImages& images, std::span<const std::uint32_t> indices);

struct ImageSet {
    std::string name;                      ///< from dataset.json, else the folder's name
    std::uint32_t classes = 10;            ///< from dataset.json, else as many as the labels need
    std::vector<std::string> class_names;  ///< from dataset.json, else those of garments and fashion-mnist; else empty
    PixelStatistics
        pixels;  ///< from dataset.json, else the usual constants of mnist and fashion-mnist, else measured on split.training
    LabeledImages train;
    LabeledImages test;
    Split split;  ///< of `train`
};

/// All of it in one table, those to train on first. The checksum is of all pixels and labels.
SampleSet samples_of(const ImageSet& set);

/// Loads and checks a folder: counts and image sizes match, labels are below the number of classes. `validation` as for
/// split_validation. Errors name the file and, for a label, its index and value.
Result<ImageSet> load_image_set(const Path& folder, double validation = 0.1, std::uint64_t split_seed = 42);

/// As open_inputs(), of an IDX file or a folder: those for training first. Labels are not looked at.
Result<std::vector<Inputs>> open_images(const Path& path, const Preparation& prepared);

}  // namespace millrace::data
