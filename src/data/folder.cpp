#include "data/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

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

namespace fs = std::filesystem;

class Search {
public:
    Search(const Path& root, std::span<const std::string_view> endings) : root_(root), endings_(endings) {}

    /// Without classes: copies under another name are files of their own.
    void run_flat() {
        flat_ = true;
        follow(root_, 0);
        for (std::size_t i = 0; i < links_.size(); ++i) follow(Path(links_[i].first), 0);
        std::ranges::sort(found_.files, {}, [](const ClassFile& file) -> const std::string& { return file.path.native(); });
    }
    Status run() {
        MILLRACE_LET(classes, entries_of(root_));
        (void)first_visit(root_, true);  // for links that lead back
        for (const Path& path : classes) {
            std::error_code failure;
            if (!fs::is_directory(path, failure)) {
                if (has_ending(path, endings_)) skip(path, "lies in no class folder");
                continue;
            }
            const std::string name = path.filename().string();
            // JSON texts are UTF-8, and a class's name is written into some.
            if (base::find_broken_utf8(name) != std::string::npos)
                return Error{"the name of a class folder is not UTF-8; rename it", path.string()};
            found_.classes.push_back(name);
            visit(path, static_cast<std::uint32_t>(found_.classes.size() - 1));
        }
        // Behind everything that is where it seems to be: a link into another class must not take its recordings away from it.
        for (std::size_t i = 0; i < links_.size(); ++i) follow(Path(links_[i].first), links_[i].second);
        std::ranges::sort(found_.files, {}, &ClassFile::path);
        remove_empty_classes();
        return base::ok();
    }
    ClassFolders take() && { return std::move(found_); }

private:
    /// Sorted, without what begins with a dot.
    static Result<std::vector<Path>> entries_of(const Path& folder) {
        MILLRACE_LET(entries, io::list_folder(folder));
        std::erase_if(entries, [](const Path& entry) { return entry.filename().string().front() == '.'; });
        return entries;
    }

    /// What is a link itself is left for later.
    void visit(const Path& path, std::uint32_t label) {
        std::error_code failure;
        if (fs::is_symlink(path, failure))
            links_.emplace_back(path, label);
        else
            follow(path, label);
    }

    void follow(const Path& path, std::uint32_t label) {
        std::error_code failure;
        const fs::file_status status = fs::status(path, failure);
        if (fs::is_directory(status)) {
            if (first_visit(path, true) == nullptr) return;
            const auto entries = entries_of(path);
            if (!entries.ok()) return skip(path, entries.error().message);
            for (const Path& entry : *entries) visit(entry, label);
        } else if (!has_ending(path, endings_)) {
            ++found_.others;
        } else if (!fs::exists(status)) {
            skip(path, "leads to nothing");
        } else if (!fs::is_regular_file(status)) {
            skip(path, "is no regular file");
        } else if (const struct stat* file = first_visit(path, false)) {
            found_.files.push_back({path, name_of(path), label, static_cast<std::uint64_t>(file->st_size),
                                    std::int64_t{file->st_mtim.tv_sec} * 1'000'000'000 + file->st_mtim.tv_nsec});
        }
    }

    void remove_empty_classes() {
        std::vector<std::string> kept;
        std::vector<std::uint32_t> renumbered(found_.classes.size());
        for (std::uint32_t label = 0; label < found_.classes.size(); ++label) {
            renumbered[label] = static_cast<std::uint32_t>(kept.size());
            if (std::ranges::find(found_.files, label, &ClassFile::label) != found_.files.end())
                kept.push_back(found_.classes[label]);
        }
        for (ClassFile& file : found_.files) file.label = renumbered[file.label];
        found_.classes = std::move(kept);
    }

    /// Null, and listed as skipped, when the same thing was met under another name.
    const struct stat* first_visit(const Path& path, bool folder) {
        if (::stat(path.c_str(), &last_) != 0) {
            skip(path, "cannot be looked at");
            return nullptr;
        }
        if (flat_ && !folder) return &last_;
        const auto [known, is_new] = met_.try_emplace({last_.st_dev, last_.st_ino}, name_of(path));
        if (!is_new) skip(path, fmt::format("is the same {} as {}", folder ? "folder" : "file", known->second));
        return is_new ? &last_ : nullptr;
    }

    std::string name_of(const Path& path) const { return path.lexically_relative(root_).string(); }
    void skip(const Path& path, const std::string& reason) { found_.skipped.push_back({name_of(path), reason}); }

    Path root_;
    bool flat_ = false;
    std::span<const std::string_view> endings_;
    ClassFolders found_;
    std::vector<std::pair<Path, std::uint32_t>> links_;  ///< and the class that they lie in
    std::map<std::pair<dev_t, ino_t>, std::string> met_;
    struct stat last_ {};
};

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

Result<nlohmann::json> made_before(const Path& folder, const nlohmann::ordered_json& made) {
    const Path place = folder / kDescription;
    std::error_code missing;
    if (!std::filesystem::exists(place, missing)) return nlohmann::json();
    MILLRACE_LET(text, io::read_text(place));
    auto described = base::json_from(text);
    if (!described.is_object() || described.value("made", nlohmann::json()) != nlohmann::json(made)) return foreign_set(place);
    return described;
}

Result<MakeOutcome> write_made_files(const Path& folder, const MadeFiles& files) {
    MILLRACE_TRY(io::make_folder(folder));
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

bool has_ending(const Path& path, std::span<const std::string_view> endings) {
    std::string ending = path.extension().string();
    std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return std::ranges::find(endings, ending) != endings.end();
}

Result<std::vector<Path>> find_files(const std::vector<Path>& paths, std::span<const std::string_view> endings,
                                     const char* what) {
    std::vector<Path> files;
    for (const Path& path : paths) {
        std::error_code failure;
        if (!fs::exists(path, failure)) return Error{"no such file or folder", path.string()};
        Search search(path, endings);
        search.run_flat();
        const ClassFolders found = std::move(search).take();
        if (found.files.empty()) return Error{fmt::format("holds no {}", what), path.string()};
        for (const ClassFile& file : found.files) files.push_back(file.path);
    }
    return files;
}

Result<ClassFolders> find_class_files(const Path& root, std::span<const std::string_view> endings) {
    Search search(root, endings);
    MILLRACE_TRY(search.run());
    return std::move(search).take();
}

}  // namespace millrace::data
