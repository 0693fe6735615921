#pragma once
#include <memory>

#include "data/sample_set.h"
#include "data/stream/streamed_source.h"

namespace millrace::data {

/// A set that check_samples() takes, wherever its inputs are, as what is streamed: a row is an input, u8 of images and else f32,
/// and its label or target. Training reads neighbours together, in an order of `seed`, so that windows mix what lies sorted;
/// evaluation reads a part in its order.
StreamedSet streamed(const std::shared_ptr<const SampleSet>& set, const Augmentation& augmentation, std::uint64_t seed);

}  // namespace millrace::data
