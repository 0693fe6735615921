#pragma once
// Pictures of one colour with a frame of another, written as PNG files.

#include <gtest/gtest.h>

#include <array>

#include "io/picture_file.h"

namespace millrace::data::testing {

using Colour = std::array<std::uint8_t, 3>;

inline io::Picture plain_picture(std::uint32_t width, std::uint32_t height, std::uint32_t channels, Colour colour) {
    io::Picture picture{width, height, channels, {}};
    for (std::uint32_t i = 0; i < width * height * channels; ++i) picture.pixels.push_back(colour[i % channels]);
    return picture;
}

inline void write_picture(const io::Path& path, const io::Picture& picture) {
    std::filesystem::create_directories(path.parent_path());
    const auto bytes = io::encode_png(picture);
    ASSERT_TRUE(bytes.ok());
    ASSERT_TRUE(io::write_atomically(path, std::string_view(*bytes)).ok());
}

}  // namespace millrace::data::testing
