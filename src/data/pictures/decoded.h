#pragma once
// The pictures of a set as rows of bytes of one size, decoded once and kept in a file.

#include <map>

#include "data/inputs.h"
#include "data/pictures/find_pictures.h"
#include "data/pictures/resize.h"
#include "data/sample_set.h"

namespace millrace::data {

struct DecodeSettings {
    PictureSide frame;
    Resize resize = Resize::fit;
    std::uint32_t channels = 1;
};

struct DecodedPictures {
    std::vector<std::uint8_t> rows;  ///< [files, frame.height, frame.width, channels]; of what cannot be read zeros
    InputReader reader;              ///< of rows that stay in the file that keeps them; `rows` is empty then
    std::map<std::size_t, std::string> unreadable;  ///< by number of the file: why
};

/// Rows of all files: from the file in which an earlier call kept them, or decoded by all processors that this process may use,
/// with a line of progress on a terminal. Kept in the folder .millrace of `root`, or in the user's cache folder where that cannot
/// be written, under a name that other names, sizes or times of the files and other settings change. Of several processes one
/// decodes while the others wait.
Result<DecodedPictures> decode_pictures(const Path& root, const std::vector<PictureFile>& files, const DecodeSettings& settings);

/// The same rows, not kept; `live`: with that line.
Result<InputRows> decode_rows(std::span<const PictureFile> files, const DecodeSettings& settings, bool live);

/// What a checkpoint says of the frame.
DecodeSettings settings_of(const Preparation& prepared);

/// Heads of all files, in parallel. What cannot be read has width 0 and is left to decode_pictures(). `until_colour`: nothing is
/// read any more some files after the first one in colour.
std::vector<io::PictureHead> read_heads(const std::vector<PictureFile>& files, bool until_colour);

}  // namespace millrace::data
