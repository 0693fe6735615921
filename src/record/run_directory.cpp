#include "record/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/version.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kHalf = ".manifest.json.tmp-";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kEvents = "events.jsonl";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kRunLock = ".lock";
constexpr int kManifestFormat = 1;
constexpr int kLockAttempts = 4;
constexpr std::chrono::milliseconds kLockPause{10};
constexpr std::array kStatusNames{"running", "finished", "interrupted", "failed"};

std::string now_text() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

base::Status write_manifest(const io::Path& folder, const Manifest& manifest) {
    MILLRACE_LET(text, manifest_text(manifest, folder / kManifest));
    MILLRACE_TRY(io::write_atomically(folder / kManifest, text));
    return base::ok();
}

/// For a disk without room for a second file. The reason is left out: the text must not grow into another block.
base::Status overwrite_manifest(const io::Path& folder, Manifest manifest) {
    manifest.reason.clear();
    MILLRACE_LET(text, manifest_text(manifest, folder / kManifest));
    return io::overwrite_in_place(folder / kManifest, text);
}

/// The process that left the half of a manifest of this name (`.manifest.json.tmp-PID-N`); nothing for other names.
std::optional<pid_t> writer_of(std::string_view name) {
    if (!name.starts_with(kHalf)) return std::nullopt;
    name.remove_prefix(kHalf.size());
    const char* end = name.data() + name.size();
    pid_t pid = 0;
    unsigned count = 0;
    const auto [dash, bad_pid] = std::from_chars(name.data(), end, pid);
    if (bad_pid != std::errc{} || pid <= 0 || dash == end || *dash != '-') return std::nullopt;
    const auto [rest, bad_count] = std::from_chars(dash + 1, end, count);
    return bad_count == std::errc{} && rest == end ? std::optional(pid) : std::nullopt;
}

/// Removes halves of manifests whose writers are gone.
void remove_halves(const io::Path& folder) {
    std::error_code ignored;
    std::vector<io::Path> halves;
    for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored))
        if (const auto writer = writer_of(at->path().filename().string()))
            if (::kill(*writer, 0) != 0 && errno == ESRCH) halves.push_back(at->path());
    for (const io::Path& half : halves) fs::remove(half, ignored);
}

/// Whether there is nothing in the folder but our lock and the half of a first manifest whose writer was killed.
base::Result<bool> holds_nothing(const io::Path& folder) {
    std::error_code failure;
    for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
        const std::string name = at->path().filename().string();
        if (name != kRunLock && !name.starts_with(kHalf)) return false;
    }
    if (failure) return io::system_error("cannot list", folder, failure.value());
    return true;
}

base::Result<RunLock> take_lock(const io::Path& folder) {
    MILLRACE_LET(held, io::KeptFolder::open(folder));
    for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
        auto lock = io::try_lock(held.path() / kRunLock);
        if (!lock.ok()) return held.named(lock.error());
        if (*lock) {
            MILLRACE_LET(locked, held.try_lock());
            if (locked) return RunLock{std::move(held), std::move(**lock)};
        }
        // A reader that checks whether the run is being written holds the lock for an instant.
        std::this_thread::sleep_for(kLockPause);
    }
    return base::Error{"another process is writing this run; wait for it or choose another --out", folder.string()};
}

/// Decides, under the lock, whether `start` may go on in `folder`. Gives the manifest to continue with.
base::Result<Manifest> prepare(const io::Path& folder, RunStart start, Manifest fresh) {
    std::error_code ignored;
    const bool holds_run = fs::exists(folder / kManifest, ignored);
    MILLRACE_LET(empty, holds_nothing(folder));
    if (start == RunStart::kResume) {
        if (!holds_run) return base::Error{"holds no run to resume: manifest.json is missing", folder.string()};
        MILLRACE_LET(old, read_manifest(folder));
        old.resumed.push_back({now_text(), fresh.command});
        old.device = fresh.device;
        old.versions = fresh.versions;
        old.millrace = fresh.millrace;
        old.status = RunStatus::kRunning;
        old.exit_status.reset();
        old.ended.clear();
        old.reason.clear();
        return old;
    }
    if (holds_run) {
        const auto old = read_manifest(folder);
        return base::Error{
            fmt::format("holds a run already ({}); remove the folder or choose another --out (train goes on with --resume)",
                        old.ok() ? name_of(old->status) : "with an unreadable manifest"),
            folder.string()};
    }
    if (!empty)
        return base::Error{"is not empty and holds no run: choose another --out, nothing in it was touched", folder.string()};
    return fresh;
}

/// Absent where it is no integer that fits: the library converts any number, whatever becomes of it.
std::optional<int> int_of(const nlohmann::ordered_json& value) {
    const bool fits = value.is_number_unsigned() ? std::in_range<int>(value.get<std::uint64_t>())
                                                 : value.is_number_integer() && std::in_range<int>(value.get<std::int64_t>());
    return fits ? std::optional(value.get<int>()) : std::nullopt;
}

}  // namespace

base::Result<std::string> manifest_text(const Manifest& manifest, const io::Path& place) {
    if (base::nests_too_deep(manifest.recipe)) return base::Error{"the recipe nests too deeply", place.string()};
    const auto recipe = base::ordered_json_from(manifest.recipe);
    if (!recipe.is_object()) return base::Error{"the recipe is not a JSON object", place.string()};
    nlohmann::ordered_json json{{"format", manifest.format},          {"millrace", manifest.millrace},
                                {"status", name_of(manifest.status)}, {"command", manifest.command},
                                {"device", manifest.device},          {"versions", manifest.versions},
                                {"started", manifest.started},        {"recipe", recipe}};
    if (manifest.init) json["init"] = {{"path", manifest.init->path}, {"checksum", manifest.init->checksum}};
    if (!manifest.ended.empty()) json["ended"] = manifest.ended;
    if (!manifest.reason.empty()) json["reason"] = manifest.reason;
    if (manifest.exit_status) json["exit_status"] = *manifest.exit_status;
    for (const Resumption& again : manifest.resumed)
        json["resumed"].push_back({{"time", again.time}, {"command", again.command}});
    return base::json_text(json, 2) + "\n";
}

base::Result<Manifest> parse_manifest(std::string_view text, const io::Path& place) {
    if (base::nests_too_deep(text)) return base::Error{"nests too deeply to be the manifest of a run", place.string()};
    try {
        const auto json = base::ordered_json_or_throw(text);
        Manifest manifest;
        manifest.format = int_of(json.at("format")).value_or(0);
        if (manifest.format > kManifestFormat)
            return base::Error{
                fmt::format("written by a newer Millrace (format {}, this one reads up to {})", manifest.format, kManifestFormat),
                place.string()};
        if (manifest.format < 1) return base::Error{"has a 'format' that is no whole number from 1 on", place.string()};
        manifest.millrace = json.value("millrace", "");
        manifest.command = json.value("command", std::vector<std::string>{});
        manifest.device = json.value("device", "");
        manifest.versions = json.value("versions", std::map<std::string, std::string>{});
        manifest.started = json.value("started", "");
        manifest.ended = json.value("ended", "");
        manifest.reason = json.value("reason", "");
        manifest.recipe = json.contains("recipe") ? base::json_text(json["recipe"]) : "{}";
        const auto status = std::ranges::find(kStatusNames, json.at("status").get<std::string>());
        if (status == kStatusNames.end())
            return base::Error{fmt::format("has the unknown status '{}'", json["status"].get<std::string>()), place.string()};
        manifest.status = static_cast<RunStatus>(status - kStatusNames.begin());
        if (json.contains("exit_status")) manifest.exit_status = int_of(json["exit_status"]);
        if (json.contains("init"))
            manifest.init = {json["init"].at("path").get<std::string>(), json["init"].at("checksum").get<std::string>()};
        if (json.contains("resumed"))
            for (const auto& again : json["resumed"])
                manifest.resumed.push_back(
                    {again.at("time").get<std::string>(), again.at("command").get<std::vector<std::string>>()});
        return manifest;
    } catch (const nlohmann::json::exception&) {
        return base::Error{"is not the manifest of a run: it must be a JSON object with 'format' and 'status'", place.string()};
    }
}

std::string_view name_of(RunStatus status) { return kStatusNames[static_cast<std::size_t>(status)]; }

base::Result<Manifest> read_manifest(const io::Path& folder) {
    MILLRACE_LET(text, io::read_text(folder / kManifest));
    return parse_manifest(text, folder / kManifest);
}

base::Result<RunLock> lock_run(const io::Path& folder) {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return base::Error{"no such run to resume", folder.string()};
    if (!fs::exists(folder / kManifest, ignored))
        return base::Error{"holds no run to resume: manifest.json is missing", folder.string()};
    return take_lock(folder);
}

base::Result<RunDirectory> RunDirectory::open(const io::Path& folder, RunStart start, Manifest manifest,
                                              std::optional<RunLock> held) {
    std::error_code failure;
    if (start == RunStart::kResume && !fs::is_directory(folder, failure))
        return base::Error{"no such run to resume", folder.string()};
    fs::create_directories(folder, failure);
    if (failure) return io::system_error("cannot create the run directory", folder, failure.value());
    // Before the lock file: a folder that is not a run is left as it was found.
    if (!fs::exists(folder / kManifest, failure)) {
        MILLRACE_LET(empty, holds_nothing(folder));
        if (!empty) return prepare(folder, start, std::move(manifest)).error();
    }
    if (!held) MILLRACE_SET(held, take_lock(folder));
    auto opened = open_locked(folder, start, std::move(manifest), *held);
    if (!opened.ok()) return held->folder.named(opened.error());
    return opened;
}

base::Result<RunDirectory> RunDirectory::open_locked(const io::Path& folder, RunStart start, Manifest manifest, RunLock& lock) {
    const io::Path& inside = lock.folder.path();
    remove_halves(inside);
    manifest.format = kManifestFormat;
    manifest.millrace = base::version();
    manifest.started = now_text();
    manifest.status = RunStatus::kRunning;
    MILLRACE_LET(current, prepare(inside, start, std::move(manifest)));
    MILLRACE_TRY(write_manifest(inside, current));
    MILLRACE_LET(metrics, MetricsWriter::open(inside / kMetrics));
    MILLRACE_LET(events, EventWriter::open(inside / kEvents));
    std::error_code failure;
    fs::create_directories(inside / kCheckpoints, failure);
    if (failure) return io::system_error("cannot create", inside / kCheckpoints, failure.value());
    const bool resumed = start == RunStart::kResume;
    MILLRACE_TRY(events.append(resumed ? "resumed" : "started", resumed ? "the run goes on" : "the run begins",
                               {{"pid", std::int64_t{::getpid()}}}));
    return RunDirectory(folder, std::move(lock), std::move(current), std::move(metrics), std::move(events));
}

base::Status RunDirectory::describe(std::string device, std::map<std::string, std::string> versions) {
    manifest_.device = std::move(device);
    manifest_.versions = std::move(versions);
    const base::Status written = write_manifest(held().path(), manifest_);
    return written.ok() ? written : held().named(written.error());
}

base::Status RunDirectory::finish(RunStatus status, int exit_status, std::string_view why) {
    base::Status synced = metrics_.sync();
    const std::string reason = synced.ok() || status == RunStatus::kFailed ? std::string(why) : synced.error().text();
    manifest_.status = synced.ok() ? status : RunStatus::kFailed;
    manifest_.exit_status = synced.ok() || exit_status != 0 ? exit_status : synced.error().exit_status;
    manifest_.ended = now_text();
    manifest_.reason = reason;
    // Before the manifest: a reader that sees the end there finds it here, too.
    (void)events_.append(name_of(manifest_.status), reason, {{"exit_status", std::int64_t{*manifest_.exit_status}}});
    base::Status written = write_manifest(held().path(), manifest_);
    if (!written.ok()) written = overwrite_manifest(held().path(), manifest_);
    if (!written.ok()) return held().named(written.error());
    return synced;
}

bool is_being_written(const io::Path& folder) { return io::is_locked(folder / kRunLock) || io::is_locked(folder); }

}  // namespace millrace::record
