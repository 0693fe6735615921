#pragma once
#include <gtest/gtest.h>

#include "data/sample_set.h"

namespace millrace::data {

/// All inputs of a set, wherever they are: bytes of images, else numbers.
template <class T>
std::vector<T> inputs_of(const SampleSet& set) {
    EXPECT_EQ(set.has_images(), sizeof(T) == 1);
    std::vector<T> inputs(static_cast<std::size_t>(set.count) * static_cast<std::size_t>(set.width));
    const base::Status read = set.read(0, std::as_writable_bytes(std::span(inputs)));
    EXPECT_TRUE(read.ok()) << read.error().text();
    return inputs;
}

}  // namespace millrace::data
