#include "record/probe_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRoom = 2 * kMappingBytes;  ///< of a program with many threads; pages come when touched
constexpr std::size_t kMostFiles = 4096;
constexpr std::string_view kEnding = ".probe";

bool has_room(const char* folder) {
    struct statvfs about {};
    return ::statvfs(folder, &about) == 0 && std::uint64_t{about.f_bavail} * about.f_frsize >= kRoom;
}

/// The process in a name such as 12.probe or 12-1.probe; 0 in others.
std::uint32_t number_in(const std::string& name) {
    std::uint32_t pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool ends = end != name.data() + name.size() && (*end == '.' || *end == '-') && name.ends_with(kEnding);
    return failed == std::errc{} && ends ? pid : 0;
}

}  // namespace

Result<ProbeFolder> ProbeFolder::create(const Path& fallback) {
    const Path parent =
        has_room("/dev/shm") && ::access("/dev/shm", W_OK | X_OK) == 0 ? Path("/dev/shm") : fs::absolute(fallback);
    std::string pattern = (parent / "millrace-probe-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        Error error = system_error("cannot create a folder for the probe", parent, errno);
        error.exit_status = 3;
        return error;
    }
    return ProbeFolder(pattern);
}

ProbeFolder::~ProbeFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::vector<ProbeFolder::Found> ProbeFolder::look() {
    std::vector<Found> found;
    std::error_code failed;
    std::size_t files = 0;
    for (fs::directory_iterator at(path_, failed), end; !failed && at != end && files < kMostFiles;
         at.increment(failed), ++files) {
        const std::string name = at->path().filename().string();
        const std::uint32_t pid = number_in(name);
        if (pid == 0 || known_.contains(name)) continue;
        auto reader = ProbeReader::open(at->path());
        if (!reader.ok()) continue;  // not ready yet, most likely; it is tried again
        known_.insert(name);
        found.push_back({std::move(reader).value(), at->path(), pid, times_[pid]++});
    }
    return found;
}

void ProbeFolder::remove(const Path& mapping) { ::unlink(mapping.c_str()); }

}  // namespace millrace::record
