#pragma once
// Pictures: PNG and JPEG, known by their content, as bytes of one or three channels. A build without libpng or libjpeg reads none
// and says so. Headers are checked before memory is asked for.

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace millrace::io {

inline constexpr std::uint64_t kMostPicturePixels = std::uint64_t{1} << 27;  ///< 400 MB in colour

struct PictureHead {
    std::uint32_t width = 0, height = 0;
    bool colour = false;
};
struct Picture {
    std::uint32_t width = 0, height = 0, channels = 1;
    std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
};

/// False in a build without the libraries.
bool can_read_pictures();

/// What the header says. Errors name `place`.
Result<PictureHead> picture_head(Bytes bytes, const Path& place);

/// The picture with 1 or 3 channels; what is transparent lies on white. A JPEG may come out smaller, by a half, quarter or
/// eighth, but neither side below `least_width` and `least_height`; 0: as it is. Refuses other formats, more than `most` pixels,
/// and files that end early or are damaged.
Result<Picture> decode_picture(Bytes bytes, const Path& place, std::uint32_t channels, std::uint32_t least_width = 0,
                               std::uint32_t least_height = 0, std::uint64_t most = kMostPicturePixels);

/// The bytes of a PNG file.
Result<std::string> encode_png(const Picture& picture);

}  // namespace millrace::io
