#include "io/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include "base/log.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLast = "last";
constexpr const char* kBest = "best";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kStep = "step-";
constexpr std::string_view kTimed = "timed-";
constexpr std::string_view kGathered = "best-";

struct StepFolder {
    Path path;
    std::uint64_t step = 0;
};

bool is_timed(const Path& folder) { return folder.filename().string().starts_with(kTimed); }

std::optional<std::uint64_t> step_of(std::string_view name) {
    if (!name.starts_with(kStep) && !name.starts_with(kTimed)) return std::nullopt;
    name.remove_prefix(name.find('-') + 1);
    std::uint64_t step = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), step);
    // A second save of one step has a suffix: step-00000012.1
    if (failure != std::errc{} || (end != name.data() + name.size() && *end != '.')) return std::nullopt;
    return step;
}

/// Of the files below all these folders. One that has several names there counts once.
std::uint64_t bytes_in(const std::vector<Path>& folders) {
    std::uint64_t total = 0;
    std::set<std::pair<dev_t, ino_t>> seen;
    for (const Path& folder : folders) {
        std::error_code failure;
        for (fs::recursive_directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
            struct stat file {};
            const bool is_file = ::lstat(at->path().c_str(), &file) == 0 && S_ISREG(file.st_mode);
            if (is_file && seen.emplace(file.st_dev, file.st_ino).second) total += static_cast<std::uint64_t>(file.st_size);
        }
    }
    return total;
}

Result<std::vector<Path>> entries_of(const Path& root) {
    std::vector<Path> entries;
    std::error_code failure;
    for (fs::directory_iterator at(root, failure), end; !failure && at != end; at.increment(failure))
        entries.push_back(at->path());
    if (failure) return system_error("cannot list", root, failure.value());
    return entries;
}

/// The name of the step folder a link of ours points at; empty when there is none.
std::string target_of(const Path& link) {
    std::error_code missing;
    return fs::read_symlink(link, missing).filename().string();
}

/// Newest first; what `last` names leads even when a resumed run went back to an earlier step.
Result<std::vector<StepFolder>> folders_in(const Path& root) {
    MILLRACE_LET(entries, entries_of(root));
    std::vector<StepFolder> folders;
    for (const Path& entry : entries)
        if (const auto step = step_of(entry.filename().string())) folders.push_back({entry, *step});
    const std::string last = target_of(root / kLast);
    std::ranges::sort(folders, [&](const StepFolder& a, const StepFolder& b) {
        const bool a_last = a.path.filename() == last, b_last = b.path.filename() == last;
        return a_last != b_last ? a_last : a.step != b.step ? a.step > b.step : a.path > b.path;
    });
    return folders;
}

/// Removes a folder so that it never stands there half empty under its own name.
Status discard(const Path& folder) {
    const Path doomed = folder.parent_path() / fmt::format("{}gone-{}-{}", kTemporary, folder.filename().string(), ::getpid());
    std::error_code failure;
    fs::rename(folder, doomed, failure);
    if (!failure) fs::remove_all(doomed, failure);
    if (failure) return system_error("cannot remove", folder, failure.value());
    return base::ok();
}

Status make_empty(const Path& folder) {
    std::error_code failure;
    fs::remove_all(folder, failure);
    if (!failure) fs::create_directory(folder, failure);
    if (failure) return system_error("cannot create", folder, failure.value());
    return base::ok();
}

}  // namespace

Result<CheckpointStore> CheckpointStore::open(const Path& checkpoints, CheckpointLimits limits, Path name) {
    std::error_code failure;
    fs::create_directories(checkpoints, failure);
    if (failure) return system_error("cannot create", checkpoints, failure.value());
    if (name.empty()) name = checkpoints;
    MILLRACE_LET(folder, KeptFolder::open(checkpoints, name));
    MILLRACE_LET(entries, entries_of(folder.path()));
    for (const Path& entry : entries) {
        if (!entry.filename().string().starts_with(kTemporary)) continue;
        fs::remove_all(entry, failure);
        if (failure) return folder.named(system_error("cannot remove what an interrupted save left", entry, failure.value()));
    }
    return CheckpointStore(checkpoints, std::move(name), std::move(folder), limits);
}

Result<SaveReport> CheckpointStore::save(const Checkpoint& checkpoint, bool is_best, CheckpointKind kind) {
    std::error_code failure;
    Status made = base::ok();
    if (folder_.was_removed()) {
        fs::create_directory(given_, failure);
        auto again =
            failure ? Result<KeptFolder>(system_error("cannot create", name_, failure.value())) : KeptFolder::open(given_, name_);
        if (again.ok())
            folder_ = std::move(again).value();
        else
            made = again.error();
    }
    const bool had_one = fs::exists(root() / kLast, failure);
    auto saved = made.ok() ? save_inside(checkpoint, is_best, kind) : Result<SaveReport>(made.error());
    if (saved.ok()) return saved;
    return Error{fmt::format("the checkpoint of step {} was not saved; {}", checkpoint.step,
                             had_one ? "the newest before it and the best are untouched" : "there is none before it"),
                 folder_.name().string(), saved.error().exit_status}
        .because(folder_.named(saved.error()));
}

Result<std::uint64_t> CheckpointStore::write(const Path& temporary, const Checkpoint& checkpoint) const {
    MILLRACE_TRY(make_empty(temporary));
    std::error_code failure;
    auto written = write_checkpoint_files(temporary, checkpoint);
    if (!written.ok()) fs::remove_all(temporary, failure);
    return written;
}

Result<SaveReport> CheckpointStore::save_inside(const Checkpoint& checkpoint, bool is_best, CheckpointKind kind) {
    std::error_code failure;
    const Path temporary = root() / fmt::format("{}step-{:08}-{}", kTemporary, checkpoint.step, ::getpid());
    auto written = write(temporary, checkpoint);
    while (!written.ok() && written.error().disk_full && drop_oldest(temporary)) written = write(temporary, checkpoint);
    if (!written.ok()) return written.error();
    SaveReport report;
    report.bytes = *written;
    const auto folder = free_folder(kind == CheckpointKind::kTimed ? kTimed : kStep, checkpoint.step);
    if (folder.ok()) fs::rename(temporary, *folder, failure);
    if (!folder.ok() || failure) {
        const Error reason = folder.ok() ? system_error("cannot rename into place", *folder, failure.value()) : folder.error();
        fs::remove_all(temporary, failure);
        return reason;
    }
    Path best = *folder;
    if (is_best && std::ranges::find(checkpoint.keeps_best, true) != checkpoint.keeps_best.end()) {
        auto gathered = gather_best(*folder, checkpoint.keeps_best);
        while (!gathered.ok() && gathered.error().disk_full && drop_oldest(*folder))
            gathered = gather_best(*folder, checkpoint.keeps_best);
        if (!gathered.ok()) {
            fs::remove_all(*folder, failure);
            return gathered.error();
        }
        best = *gathered;
    }
    MILLRACE_TRY(sync_folder(root()));
    // `best` first: a process that dies in between resumes from the older `last` and decides again.
    if (is_best) MILLRACE_TRY(point(kBest, best));
    MILLRACE_TRY(point(kLast, *folder));
    MILLRACE_TRY(sync_folder(root()));
    if (const Status collected = collect(report, checkpoint.step); !collected.ok())
        MILLRACE_LOG(warn, "{}\nan old checkpoint stays; the new one is saved", folder_.named(collected.error()).text());
    report.folder = folder_.name() / folder->filename();
    return report;
}

bool CheckpointStore::drop_oldest(const Path& newest) const {
    const std::set<std::string> used{target_of(root() / kLast), target_of(root() / kBest), newest.filename().string()};
    auto folders = folders_in(root());
    if (!folders.ok()) return false;
    std::erase_if(*folders, [&](const StepFolder& folder) { return used.contains(folder.path.filename().string()); });
    if (folders->empty() || !discard(folders->back().path).ok()) return false;
    MILLRACE_LOG(warn, "{}: the disk is full, so the oldest checkpoint went: {}", folder_.name().string(),
                 folders->back().path.filename().string());
    return true;
}

/// A folder with each member's best model.
Result<Path> CheckpointStore::gather_best(const Path& newest, const std::vector<bool>& keeps) const {
    std::error_code failure;
    const Path before = fs::canonical(root() / kBest, failure);
    if (failure) return system_error("no best weights to keep", root() / kBest, failure.value());
    const Path temporary = root() / fmt::format("{}{}{}", kTemporary, kGathered, ::getpid());
    MILLRACE_TRY(make_empty(temporary));
    const auto gather = [&]() -> Result<Path> {
        MILLRACE_TRY(gather_models(temporary, newest, before, keeps));
        MILLRACE_LET(folder, free_folder(kGathered, step_of(newest.filename().string()).value_or(0)));
        fs::rename(temporary, folder, failure);
        if (failure) return system_error("cannot rename into place", folder, failure.value());
        return folder;
    };
    auto gathered = gather();
    if (!gathered.ok()) fs::remove_all(temporary, failure);
    return gathered;
}

Result<Path> CheckpointStore::free_folder(std::string_view prefix, std::uint64_t step) const {
    const std::set<std::string> used{target_of(root() / kLast), target_of(root() / kBest)};
    for (int attempt = 0;; ++attempt) {
        const Path folder =
            root() / (attempt == 0 ? fmt::format("{}{:08}", prefix, step) : fmt::format("{}{:08}.{}", prefix, step, attempt));
        std::error_code ignored;
        if (!fs::exists(fs::symlink_status(folder, ignored))) return folder;
        if (used.contains(folder.filename().string())) continue;
        // A save that died before its links moved, or the same step of a run before a resume: no link points at it.
        MILLRACE_TRY(discard(folder));
        return folder;
    }
}

Status CheckpointStore::point(const char* link, const Path& folder) const {
    const Path temporary = root() / fmt::format("{}{}-{}", kTemporary, link, ::getpid());
    ::unlink(temporary.c_str());
    if (::symlink(folder.filename().c_str(), temporary.c_str()) != 0)
        return system_error("cannot create the link", root() / link, errno);
    if (::rename(temporary.c_str(), (root() / link).c_str()) != 0) {
        const int reason = errno;
        ::unlink(temporary.c_str());
        return system_error("cannot move the link", root() / link, reason);
    }
    return base::ok();
}

Status CheckpointStore::collect(SaveReport& report, std::uint64_t newest) const {
    const std::set<std::string> used{target_of(root() / kLast), target_of(root() / kBest)};
    MILLRACE_LET(entries, entries_of(root()));
    std::vector<Path> kept;
    for (const Path& entry : entries) {
        const std::string name = entry.filename().string();
        const bool is_gathered = name.starts_with(kGathered);
        if (is_gathered && !used.contains(name))
            MILLRACE_TRY(discard(entry));
        else if (is_gathered || step_of(name))
            kept.push_back(entry);
    }
    report.total_bytes = bytes_in(kept);
    MILLRACE_LET(folders, folders_in(root()));
    // Folders of later steps were passed over on resume, because they are damaged: they must not push whole ones out.
    std::erase_if(folders, [newest](const StepFolder& folder) { return folder.step > newest; });
    auto newer_steps = std::ranges::count_if(folders, [](const StepFolder& folder) { return !is_timed(folder.path); });
    for (std::size_t i = folders.size(); i-- > 0;) {
        const StepFolder& folder = folders[i];
        const bool timed = is_timed(folder.path);
        if (!timed) --newer_steps;
        if (used.contains(folder.path.filename().string())) continue;
        const bool over_bytes = limits_.keep_bytes > 0 && report.total_bytes > limits_.keep_bytes;
        if (!timed && newer_steps < limits_.keep && !over_bytes) continue;
        MILLRACE_TRY(discard(folder.path));
        std::erase(kept, folder.path);
        report.total_bytes = bytes_in(kept);
    }
    return base::ok();
}

Result<std::vector<Path>> checkpoint_folders(const Path& checkpoints) {
    std::error_code ignored;
    if (fs::symlink_status(checkpoints, ignored).type() == fs::file_type::not_found) return std::vector<Path>{};
    MILLRACE_LET(found, folders_in(checkpoints));
    std::vector<Path> folders;
    folders.reserve(found.size());
    for (StepFolder& folder : found) folders.push_back(std::move(folder.path));
    return folders;
}

Result<LoadedCheckpoint> load_checkpoint(const Path& folder, LoadParts parts) {
    // The link is resolved once, so that all files come from one save; if a writer beside us retired that save meanwhile, the
    // link has moved on and we follow it.
    for (int attempt = 0;; ++attempt) {
        std::error_code failure;
        const Path resolved = fs::canonical(folder, failure);
        if (failure) return system_error("no such checkpoint", folder, failure.value());
        auto loaded = read_checkpoint_files(resolved, parts);
        if (loaded.ok()) return loaded;
        if (attempt == 3 || fs::canonical(folder, failure) == resolved)
            return Error{"the checkpoint cannot be loaded", folder.string(), loaded.error().exit_status}.because(loaded.error());
    }
}

}  // namespace millrace::io
