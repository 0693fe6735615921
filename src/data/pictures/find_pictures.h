#pragma once
// Where the pictures of a set lie: ROOT/CLASS/.../name.png, ROOT/train/CLASS/... beside valid/ and test/, or ROOT/name.png beside
// a table of labels.

#include <array>

#include "data/class_folders.h"
#include "data/sample_request.h"

namespace millrace::data {

inline constexpr std::array<std::string_view, 3> kPictureEndings{".png", ".jpg", ".jpeg"};

struct PictureFile {
    Path path;
    std::string name;  ///< below the root
    std::uint32_t label = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified = 0;
    Part part = Part::train;
};
struct PictureFolder {
    std::vector<std::string> classes;  ///< sorted; none where a table has the labels
    std::vector<PictureFile> files;    ///< by name
    Path labels;                       ///< the table; empty: the folders are the classes
    std::vector<SkippedFile> skipped;
};

/// Whether there is a picture in `root` or at most two folders below it; looks no further than the first.
bool holds_pictures(const Path& root);

/// Parts are those of folders train, valid (or validation, val) and test; without these, and without valid alone, pictures of
/// the shares asked for are chosen by their names. Refuses folders without a picture and several tables.
Result<PictureFolder> find_pictures(const SampleRequest& request);

}  // namespace millrace::data
