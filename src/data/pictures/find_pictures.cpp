#include "data/pictures/pictures.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "data/forms.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

bool picture_within(const Path& folder, int depth) {
    std::error_code failure;
    std::vector<Path> folders;
    for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
        if (at->path().filename().string().front() == '.') continue;
        if (has_ending(at->path(), kPictureEndings)) return true;
        std::error_code ignored;
        if (depth > 0 && at->is_directory(ignored)) folders.push_back(at->path());
    }
    return std::ranges::any_of(folders, [&](const Path& below) { return picture_within(below, depth - 1); });
}

/// The class folders of `root`, all in one part. Labels number the classes of `found` anew.
Status add_folders(const Path& root, const std::string& prefix, Part part, PictureFolder& found) {
    MILLRACE_LET(folders, find_class_files(root, kPictureEndings));
    for (ClassFile& file : folders.files) {
        const std::string& name = folders.classes[file.label];
        const auto at = std::ranges::find(found.classes, name);
        file.label = static_cast<std::uint32_t>(at - found.classes.begin());
        if (at == found.classes.end()) found.classes.push_back(name);
        file.name = prefix + file.name;
        file.part = part;
        found.files.push_back(std::move(file));
    }
    found.skipped.insert(found.skipped.end(), folders.skipped.begin(), folders.skipped.end());
    return base::ok();
}

/// Pictures of `root` itself, beside the table that labels them.
Status add_flat(const Path& root, PictureFolder& found) {
    MILLRACE_LET(entries, io::list_folder(root));
    for (const Path& path : entries) {
        const std::string ending = unpacked_ending(path);
        if ((ending == ".csv" || ending == ".tsv") && !found.labels.empty())
            return Error{fmt::format("holds two tables, {} and {}; one, with the labels, would be right",
                                     found.labels.filename().string(), path.filename().string()),
                         root.string()};
        if (ending == ".csv" || ending == ".tsv") found.labels = path;
        struct stat file {};
        if (!has_ending(path, kPictureEndings) || ::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
        found.files.push_back({path, path.filename().string(), 0, static_cast<std::uint64_t>(file.st_size),
                               std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec});
    }
    if (found.labels.empty())
        return Error{
            "holds pictures without a class; a folder per class (cats/a.png, dogs/b.png), or one table beside them with "
            "the columns file and label, would be right",
            root.string()};
    return base::ok();
}

/// Labels in the order of the classes' names.
void sort_classes(PictureFolder& found) {
    std::vector<std::string> sorted = found.classes;
    std::ranges::sort(sorted);
    for (ClassFile& file : found.files)
        file.label = static_cast<std::uint32_t>(std::ranges::find(sorted, found.classes[file.label]) - sorted.begin());
    found.classes = std::move(sorted);
}

}  // namespace

bool holds_pictures(const Path& root) { return picture_within(root, 2); }

Result<PictureFolder> find_pictures(const SampleRequest& request) {
    PictureFolder found;
    std::set<Part> parts;
    std::error_code ignored;
    for (const auto& [name, part] : kPartNames)
        if (fs::is_directory(request.path / name, ignored) && picture_within(request.path / name, 1)) {
            parts.insert(part);
            MILLRACE_TRY(add_folders(request.path / name, std::string(name) + "/", part, found));
        }
    if (parts.empty()) MILLRACE_TRY(add_folders(request.path, "", Part::train, found));
    if (found.files.empty()) {
        found.skipped.clear();  // they lie in no class folder because there is none
        MILLRACE_TRY(add_flat(request.path, found));
    } else {
        sort_classes(found);
    }
    // What has a part of its own keeps it; a share of the training pictures makes up for a part that is missing.
    SampleRequest shares = request;
    if (parts.contains(Part::validation)) shares.validation = 0;
    if (!parts.empty()) shares.test = 0;
    for (ClassFile& file : found.files)
        if (file.part == Part::train) file.part = part_of_name(file.name, shares);
    std::ranges::sort(found.files, {}, &ClassFile::name);
    return found;
}

}  // namespace millrace::data
