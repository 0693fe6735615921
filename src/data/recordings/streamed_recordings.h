#pragma once
#include <memory>

#include "data/recordings/recording_set.h"
#include "data/stream/streamed_source.h"

namespace millrace::data {

/// A set that has its features in files, as what is streamed: a row is the features of a window of sound in f16 and its label.
/// `mask` as RecordingOptions::mask.
StreamedSet streamed(const std::shared_ptr<const RecordingSet>& set, std::int32_t mask = 0);

}  // namespace millrace::data
