#include "record/probe_files.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>

#include "record/elf_symbols.h"
#include "record/process_numbers.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbeName = "libmillrace-probe.so";
constexpr const char* kEntry = "InitializeInjection";  ///< what CUDA calls
#if defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
constexpr std::uint16_t kMachine = EM_X86_64;
#endif

std::string flaw_of(const io::Path& path) {
    std::error_code failed;
    if (!fs::exists(path, failed)) return "there is no such file";
    if (!fs::is_regular_file(path, failed)) return "is not a file";
    const auto symbols = find_elf_symbols(path, {kEntry});
    if (!symbols.ok() || symbols->type != ET_DYN) return "is not a shared library";
    if (symbols->machine != kMachine) return "is a library for another architecture than this machine's";
    if (!symbols->values.contains(kEntry)) return fmt::format("is a library without the entry point {}", kEntry);
    return {};
}

constexpr std::uint64_t kRoom = 2 * kMappingBytes;  ///< of a program with many threads; pages come when touched
constexpr std::size_t kMostFiles = 4096;
constexpr std::string_view kEnding = ".probe", kBeginning = "millrace-probe-";
constexpr const char* kProbeLock = ".lock";  ///< held while the folder is in use
constexpr std::time_t kSettledAfter = 60;    ///< seconds; in a younger folder the lock may be about to be taken

bool is_usable(const io::Path& folder) { return ::access(folder.c_str(), W_OK | X_OK) == 0; }

bool has_room(const io::Path& folder, std::uint64_t bytes) {
    struct statvfs about {};
    return ::statvfs(folder.c_str(), &about) == 0 && std::uint64_t{about.f_bavail} * about.f_frsize > bytes;
}

/// Whether a recording that was killed left `folder`: a folder of this user whose lock no process holds.
bool is_abandoned(const io::Path& folder) {
    struct stat about {};
    if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::geteuid()) return false;
    if (::time(nullptr) - about.st_mtime < kSettledAfter) return false;
    const auto lock = io::open_file(folder / kProbeLock, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    return !lock.ok() || ::flock(lock->get(), LOCK_SH | LOCK_NB) == 0;
}

/// Memory does not come back by itself when `record` was killed; the next one frees it.
void remove_abandoned(const io::Path& parent) {
    std::error_code failed;
    std::vector<io::Path> left;
    for (fs::directory_iterator at(parent, failed), end; !failed && at != end; at.increment(failed))
        if (at->path().filename().string().starts_with(kBeginning) && is_abandoned(at->path())) left.push_back(at->path());
    for (const io::Path& each : left) fs::remove_all(each, failed);
}

base::Error unavailable(base::Error error) {
    error.exit_status = 3;
    return error;
}

/// The process in a name such as 12.probe or 12-1.probe; 0 in others.
std::uint32_t number_in(const std::string& name) {
    std::uint32_t pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool ends = end != name.data() + name.size() && (*end == '.' || *end == '-') && name.ends_with(kEnding);
    return failed == std::errc{} && ends ? pid : 0;
}

}  // namespace

base::Result<std::string> check_probe_library(const io::Path& path) {
    std::error_code failed;
    const io::Path place = fs::absolute(path, failed);
    if (const std::string flaw = flaw_of(place); !flaw.empty())
        return base::Error{fmt::format("{}; the probe is the {} that was built with this program", flaw, kProbeName),
                           path.string()};
    return place.string();
}

base::Result<std::string> find_probe_library(const io::Path& folder) {
    std::error_code failed;
    const io::Path above = folder.parent_path();
    for (const io::Path& place :
         {folder / kProbeName, above / "lib" / kProbeName, above / "lib/millrace" / kProbeName, above / kProbeName}) {
        if (!fs::is_regular_file(place, failed)) continue;
        auto checked = check_probe_library(place);
        if (checked.ok()) return checked;
        return unavailable(checked.error());
    }
    return base::Error{fmt::format("the probe's library, {}, is neither beside this program nor in ../lib or ../lib/millrace; "
                                   "put it there, or name it with --probe FILE",
                                   kProbeName),
                       folder.string(), 3};
}

base::Result<std::string> find_probe_library() {
    std::error_code failed;
    return find_probe_library(fs::read_symlink("/proc/self/exe", failed).parent_path());
}

base::Result<ProbeFolder> ProbeFolder::create(const io::Path& fallback) {
    struct rlimit longest {};
    if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur < kMappingBytes)
        return unavailable(
            base::Error{fmt::format("files may have no more than {} bytes here (ulimit -f), but the probe needs one of {} MiB",
                                    longest.rlim_cur, (kMappingBytes >> 20) + 1)});
    const io::Path memory = "/dev/shm";
    std::error_code failed;
    remove_abandoned(memory);
    const io::Path parent = is_usable(memory) && has_room(memory, kRoom) ? memory : fs::absolute(fallback, failed);
    if (parent.empty())
        return unavailable(base::Error{"has no room for the probe, and TMPDIR names no folder to use instead", memory.string()});
    if (parent != memory) remove_abandoned(parent);
    std::string pattern = (parent / kBeginning).string() + "XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
        return unavailable(io::system_error("cannot create a folder for the probe", parent, errno));
    ProbeFolder folder(pattern);
    MILLRACE_LET(lock, io::open_file(folder.path_ / kProbeLock, O_RDWR | O_CREAT));
    (void)::flock(lock.get(), LOCK_EX);
    folder.lock_ = std::move(lock);
    if (!has_room(parent, kMappingBytes))
        return unavailable(base::Error{
            fmt::format("has less than {} MiB free, which the probe needs, as has /dev/shm; set TMPDIR to a folder that has more",
                        (kMappingBytes >> 20) + 1),
            parent.string()});
    return folder;
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
        found.push_back({std::move(reader).value(), at->path(), find_owner(at->path(), pid), times_[pid]++});
    }
    return found;
}

void ProbeFolder::remove(const io::Path& mapping) { ::unlink(mapping.c_str()); }

}  // namespace millrace::record
