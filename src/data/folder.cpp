#include "data/folder.h"

#include <algorithm>

namespace millrace::data {
namespace {

/// Whether `path` holds exactly `text`; an error when it holds something else.
Result<bool> is_there(const Path& path, const std::string& text) {
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) return false;
    const auto old = io::read_text(path, text.size());
    if (!old.ok() || *old != text) return foreign_set(path);
    return true;
}

}  // namespace

std::string folder_name(const Path& folder) {
    Path clean = folder.lexically_normal();
    if (!clean.has_filename()) clean = clean.parent_path();
    return clean.filename().string();
}

Error foreign_set(const Path& place) {
    return Error{"belongs to a data set that was not made with these options; give another --out, or remove it first",
                 place.string()};
}

Result<MakeOutcome> write_made_files(const Path& folder, const MadeFiles& files) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) return io::system_error("cannot create the folder", folder, failure.value());
    std::vector<bool> there;
    for (const auto& [name, text] : files) {
        MILLRACE_LET(same, is_there(folder / name, text));
        there.push_back(same);
    }
    if (std::ranges::find(there, false) == there.end()) return MakeOutcome::kAlreadyThere;
    for (std::size_t i = 0; i < there.size(); ++i)
        if (!there[i]) MILLRACE_TRY(io::write_atomically(folder / files[i].first, files[i].second));
    return MakeOutcome::kWritten;
}

}  // namespace millrace::data
