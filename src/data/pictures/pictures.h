#pragma once
// Pictures: where they lie, and how they come to one size, decoded once and kept in a file.

#include <array>
#include <map>
#include <span>

#include "data/folder.h"
#include "data/forms.h"
#include "data/sample_set.h"
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

inline constexpr std::array<std::string_view, 3> kPictureEndings{".png", ".jpg", ".jpeg"};

/// The pictures of a set: ROOT/CLASS/.../name.png, ROOT/train/CLASS/... beside valid/ and test/, or ROOT/name.png beside a table
/// of labels, which has the classes then.
struct PictureFolder : ClassFolders {
    Path labels;  ///< the table; empty: the folders are the classes
};

/// Whether there is a picture in `root` or at most two folders below it; looks no further than the first.
bool holds_pictures(const Path& root);

/// Parts are those of folders train, valid (or validation, val) and test; without these, and without valid alone, pictures of
/// the shares asked for are chosen by their names. Refuses folders without a picture and several tables.
Result<PictureFolder> find_pictures(const SampleRequest& request);

/// The pictures of a set as rows of bytes of one size.
struct DecodedPictures {
    std::vector<std::uint8_t> rows;                 ///< [files, height, width, channels]; of what cannot be read zeros
    InputReader reader;                             ///< of rows that stay in the file that keeps them; `rows` is empty then
    std::map<std::size_t, std::string> unreadable;  ///< by number of the file: why
};

/// Rows of all files, of the shape and by the resize of `prepared`: from the file in which an earlier call kept them, or decoded
/// by all processors that this process may use, with a line of progress on a terminal. Kept in the folder .millrace of `root`, or
/// in the user's cache folder where that cannot be written, under a name that other names, sizes or times of the files, another
/// shape and another resize change. Of several processes one decodes while the others wait.
Result<DecodedPictures> decode_pictures(const Path& root, const std::vector<ClassFile>& files, const Preparation& prepared);

/// The same rows, not kept; `live`: with that line.
Result<InputRows> decode_rows(std::span<const ClassFile> files, const Preparation& prepared, bool live);

/// Heads of all files, in parallel. What cannot be read has width 0 and is left to decode_pictures(). `until_colour`: nothing is
/// read any more some files after the first one in colour.
std::vector<io::PictureHead> read_heads(const std::vector<ClassFile>& files, bool until_colour);

}  // namespace millrace::data
