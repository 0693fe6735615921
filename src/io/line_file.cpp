#include "io/line_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace millrace::io {

Result<LineFile> LineFile::create(const Path& path) {
    if (path == "-") {
        FileDescriptor copy(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
        if (!copy.valid()) return system_error("cannot write to", "standard output", errno);
        return LineFile(std::move(copy), "standard output", false);
    }
    MILLRACE_LET(file, open_file(path, O_WRONLY | O_CREAT | O_TRUNC));
    struct stat about {};
    const bool regular = ::fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode);
    return LineFile(std::move(file), path, regular);
}

Status LineFile::write(std::string_view text) {
    for (std::string_view rest = text; !rest.empty();) {
        const ssize_t put = ::write(file_.get(), rest.data(), rest.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN) {
            pollfd ready{file_.get(), POLLOUT, 0};
            ::poll(&ready, 1, -1);
            continue;
        }
        if (put <= 0) {
            const Error error = system_error("cannot write", path_, put < 0 ? errno : ENOSPC);
            if (regular_) [[maybe_unused]]
                const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(written_));
            return error;
        }
        rest.remove_prefix(static_cast<std::size_t>(put));
    }
    written_ += text.size();
    return base::ok();
}

}  // namespace millrace::io
