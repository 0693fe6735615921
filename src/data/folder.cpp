#include "data/folder.h"

namespace millrace::data {

std::string folder_name(const Path& folder) {
    Path clean = folder.lexically_normal();
    if (!clean.has_filename()) clean = clean.parent_path();
    return clean.filename().string();
}

Error foreign_set(const Path& place) {
    return Error{"belongs to a data set that was not made with these options; give another --out, or remove it first",
                 place.string()};
}

}  // namespace millrace::data
