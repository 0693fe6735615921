// Pictures of a build without libpng or libjpeg: none.
#include "io/picture_file.h"

namespace millrace::io {
namespace {

Error no_pictures(const Path& place) {
    return Error{
        "cannot be read: this millrace was built without libpng or libjpeg; install Debian's libpng-dev and libjpeg-dev "
        "and build again",
        place.string()};
}

}  // namespace

bool can_read_pictures() { return false; }

Result<PictureHead> picture_head(Bytes, const Path& place) { return no_pictures(place); }

Result<Picture> decode_picture(Bytes, const Path& place, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t) {
    return no_pictures(place);
}

Result<std::string> encode_png(const Picture&) { return no_pictures({}); }

}  // namespace millrace::io
