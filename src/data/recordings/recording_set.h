#pragma once
// Recordings cut into windows, each window a row of features: what a folder of TRAINING_DATASET.H5, VALIDATION_DATASET.H5 and
// TESTING_DATASET.H5 holds.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_source.h"

namespace millrace::data {

/// The recordings of one part. Window w of recording r is row r * windows + w.
struct Recordings {
    std::int32_t count = 0;
    std::vector<std::uint16_t> features;  ///< f16 [count * windows, width]
    std::vector<std::int32_t> labels;     ///< of each recording, below the number of classes
};

struct RecordingSet {
    std::string name;
    Classes classes;           ///< counts are of windows
    std::int32_t windows = 1;  ///< of a recording: the product of classes.together
    std::int32_t width = 1;
    std::array<Recordings, kPartCount> parts;
    std::shared_ptr<const Scaling> scaling;

    [[nodiscard]] const Recordings& part(Part which) const { return parts[index_of(which)]; }
};

/// Mean and deviation of each column over the rows; a column that never changes has deviation 1.
Scaling measure(const Recordings& recordings, std::int32_t width);

/// Turns the classes into two, the positive one and all others, whose name is "NO" and its name.
void make_binary(RecordingSet& set);

/// Counts the windows of each class in the training part.
void count_classes(RecordingSet& set);

}  // namespace millrace::data
