#pragma once
// The files of a set of recordings, by part (data/batch_source.h).

#include <array>

namespace millrace::data {

inline constexpr std::array<const char*, 3> kRecordingFiles{"TRAINING_DATASET.H5", "VALIDATION_DATASET.H5", "TESTING_DATASET.H5"};

}  // namespace millrace::data
