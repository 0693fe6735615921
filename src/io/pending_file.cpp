#include "io/pending_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

namespace millrace::io {

Path temporary_name(const Path& path) {
    static std::atomic<unsigned> counter{0};
    Path name;
    // Steps over what a killed process left: in a container every process may have the number 1.
    do {
        name = path.parent_path() / fmt::format(".{}.tmp-{}-{}", path.filename().string(), ::getpid(), counter.fetch_add(1));
    } while (std::filesystem::exists(std::filesystem::symlink_status(name)));
    return name;
}

Status check_writable(const Path& path) {
    constexpr std::size_t kProbe = std::size_t{64} << 10;
    const Path folder = path.parent_path();
    if (std::error_code ignored; !folder.empty() && !std::filesystem::is_directory(folder, ignored))
        return Error{"there is no such folder to write into", folder.string()};
    MILLRACE_LET(probe, PendingFile::begin(path));
    const std::vector<std::byte> bytes(kProbe);
    const auto written = write_new_file(probe.temporary(), [&](FileWriter& writer) { return writer.write(bytes); });
    if (written.ok()) return base::ok();
    return Error{"cannot be written", path.string(), written.error().exit_status}.because(written.error());
}

Result<PendingFile> PendingFile::begin(const Path& path) {
    MILLRACE_TRY(check_replaceable(path));
    return PendingFile(path, temporary_name(path));
}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, Path{})) {}

PendingFile& PendingFile::operator=(PendingFile&& other) noexcept {
    if (this != &other) {
        discard();
        path_ = std::move(other.path_);
        temporary_ = std::exchange(other.temporary_, Path{});
    }
    return *this;
}

PendingFile::~PendingFile() { discard(); }

void PendingFile::discard() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
}

Status PendingFile::commit() {
    MILLRACE_ASSERT(!temporary_.empty(), "committed twice");
    const auto failed = [this](const char* what, int reason) {
        discard();
        return system_error(what, path_, reason);
    };
    {
        auto file = open_file(temporary_, O_RDONLY);
        if (!file.ok()) {
            discard();
            return file.error();
        }
        if (::fsync(file->get()) != 0) return failed("cannot sync", errno);
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("cannot rename into place", errno);
    temporary_.clear();
    const Path folder = path_.parent_path();
    return sync_folder(folder.empty() ? Path(".") : folder);
}

}  // namespace millrace::io
