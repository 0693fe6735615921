#include "probe/thread_states.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
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

std::uint64_t thread_clock() {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    const auto rate = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    return static_cast<std::uint64_t>(time.tv_sec) * rate + static_cast<std::uint64_t>(time.tv_nsec) * rate / 1'000'000'000;
}

bool is_asleep(std::uint32_t thread, std::uint64_t since) {
    constexpr int kStart = 19;  // words behind the state
    const int error = errno;
    char text[512];
    const long length = read_file(thread, "stat", text);
    const bool ended = length < 0 && has_ended(thread);
    const char* const name_end = length > 0 ? ::strrchr(text, ')') : nullptr;
    const char kind = name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
    const char* word = kind != '?' ? name_end + 2 : nullptr;
    for (int i = 0; i < kStart && word != nullptr; ++i)
        if (word = ::strchr(word, ' '); word != nullptr) ++word;
    const bool older = word != nullptr && ::strtoull(word, nullptr, 10) < since;
    const bool sleeps = older || ended || kind == 'Z' || kind == 'X' || (kind == 'S' && !may_be_in_driver(thread));
    errno = error;
    return sleeps;
}

bool do_all(bool (*holds)(std::uint32_t thread, void* data), void* data) {
    constexpr int kMost = 1024;  // threads; a program with more is not looked at for long
    const int error = errno;
    const int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool all = folder >= 0;
    int count = 0;
    alignas(8) char entries[4096];
    while (all) {
        const long length = ::syscall(SYS_getdents64, folder, entries, sizeof entries);
        all = length >= 0;
        if (length <= 0) break;
        for (long at = 0; at < length && all;) {
            std::uint16_t size;
            ::memcpy(&size, entries + at + 16, sizeof size);
            const unsigned long thread = ::strtoul(entries + at + 19, nullptr, 10);
            all = size > 0 && (thread == 0 || (++count <= kMost && holds(static_cast<std::uint32_t>(thread), data)));
            at += size;
        }
    }
    if (folder >= 0) ::close(folder);
    errno = error;
    return all && count > 0;
}

}  // namespace millrace::probe
