#include "base/signal_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace millrace::base {
namespace {

bool is_ignored(int number) {
    struct sigaction action {};
    return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

timespec timespec_of(std::chrono::nanoseconds duration) {
    duration = std::max(duration, std::chrono::nanoseconds{0});
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(duration);
    return {static_cast<time_t>(whole.count()), static_cast<long>((duration - whole).count())};
}

}  // namespace

SignalQueue::SignalQueue(std::span<const int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : signals)
        if (!is_ignored(number)) sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    woken_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals_ >= 0 && woken_ >= 0) return;
    const int reason = errno;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw std::system_error(reason, std::generic_category(), "no descriptor for signals");
}

SignalQueue::~SignalQueue() {
    close(signals_);
    close(woken_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<SignalEvent> SignalQueue::next(std::optional<std::chrono::nanoseconds> timeout) {
    pollfd waited[] = {{signals_, POLLIN, 0}, {woken_, POLLIN, 0}};
    const timespec limit = timespec_of(timeout.value_or(std::chrono::nanoseconds{0}));
    while (ppoll(waited, 2, timeout ? &limit : nullptr, nullptr) < 0)
        if (errno != EINTR) return std::nullopt;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        return SignalEvent{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
    std::uint64_t count = 0;
    (void)!read(woken_, &count, sizeof count);
    return std::nullopt;
}

void SignalQueue::wake() {
    const std::uint64_t one = 1;
    (void)!write(woken_, &one, sizeof one);
}

}  // namespace millrace::base
