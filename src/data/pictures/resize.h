#pragma once
// Pictures of one size.

#include <span>

#include "io/picture_file.h"

namespace millrace::data {

enum class Resize : std::uint8_t {
    fit,   ///< all of the picture, in the middle, with black borders where its proportions are others
    crop,  ///< the middle of the picture, all of the frame
};

/// What a picture of width x height must have at least before it is made smaller to fill the frame: no detail is lost by scaling
/// to that size first.
struct PictureSide {
    std::uint32_t width = 0, height = 0;
};
PictureSide scaled_size(std::uint32_t width, std::uint32_t height, const PictureSide& frame, Resize how);

/// Fills `to` [frame.height, frame.width, channels]. Smaller pictures are means over areas weighted by distance, larger ones
/// interpolated; one of the frame's size is copied.
void place_picture(const io::Picture& picture, const PictureSide& frame, Resize how, std::span<std::uint8_t> to);

}  // namespace millrace::data
