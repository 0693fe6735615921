#include "probe/sleepers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace millrace::probe {
namespace {

/// A file of a thread in /proc, with a zero behind it; below zero: it cannot be read.
template <std::size_t size>
long read_file(std::uint32_t thread, const char* name, char (&text)[size]) {
    char path[64];
    ::snprintf(path, sizeof path, "/proc/self/task/%u/%s", thread, name);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    const long length = ::read(file, text, size - 1);
    ::close(file);
    text[length > 0 ? length : 0] = 0;
    return length;
}

/// Drivers are asked by ioctl, and waited for by poll.
bool may_be_in_driver(std::uint32_t thread) {
    char text[256];
    if (read_file(thread, "syscall", text) <= 0) return false;  // not every system tells
    if (text[0] == 'r') return true;                            // "running": it woke up just now
    if (text[0] < '0' || text[0] > '9') return false;
    const long call = ::strtol(text, nullptr, 10);
#ifdef SYS_poll
    if (call == SYS_poll) return true;
#endif
    return call == SYS_ioctl || call == SYS_ppoll;
}

/// Asked of the kernel: where /proc is not mounted, or shows another namespace's numbers, it has no thread of this process.
bool has_ended(std::uint32_t thread) { return ::syscall(SYS_tgkill, ::getpid(), thread, 0) != 0 && errno == ESRCH; }

}  // namespace

bool does_sleep(std::uint32_t thread) {
    const int error = errno;
    char text[512];
    const long length = read_file(thread, "stat", text);
    const bool ended = length < 0 && has_ended(thread);
    const char* const name_end = length > 0 ? ::strrchr(text, ')') : nullptr;
    const char kind = name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
    const bool sleeps = ended || kind == 'Z' || kind == 'X' || (kind == 'S' && !may_be_in_driver(thread));
    errno = error;
    return sleeps;
}

}  // namespace millrace::probe
