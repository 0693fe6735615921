#include "record/system_call_names.h"

#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace millrace::record {
namespace {

/// Those that threads of training programs wait in. Numbers differ between architectures, and some have no older forms.
constexpr std::pair<long, std::string_view> kNames[] = {
    {SYS_futex, "futex"},
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_openat, "openat"},
    {SYS_close, "close"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_ioctl, "ioctl"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendto, "sendto"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_madvise, "madvise"},
    {SYS_brk, "brk"},
    {SYS_getdents64, "getdents64"},
    {SYS_clone, "clone"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
#endif
#ifdef SYS_select
    {SYS_select, "select"},
#endif
#ifdef SYS_epoll_wait
    {SYS_epoll_wait, "epoll_wait"},
#endif
#ifdef SYS_fork
    {SYS_fork, "fork"},
#endif
};

}  // namespace

std::string_view system_call_in(std::string_view line) {
    long number = -1;
    const auto [end, failed] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (failed != std::errc{} || number < 0) return {};
    const auto* found = std::ranges::find(kNames, number, [](const auto& entry) { return entry.first; });
    return found == std::end(kNames) ? "other" : found->second;
}

}  // namespace millrace::record
