#include "train/stop_signals.h"

#include <unistd.h>

#include <csignal>

#include "base/result.h"

namespace millrace::train {
namespace {

std::atomic<int> caught_signal{0};
std::atomic<bool> in_use{false};
struct sigaction hangup_before, pipe_before;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void remember_signal(int number) {
    if (caught_signal.exchange(number) != 0) _exit(128 + number);
}

void handle(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
    MILLRACE_ASSERT(!in_use.exchange(true), "one StopSignals at a time");
    caught_signal = 0;
    handle(SIGINT, remember_signal);
    handle(SIGTERM, remember_signal);
    sigaction(SIGHUP, nullptr, &hangup_before);
    if (hangup_before.sa_handler != SIG_IGN) handle(SIGHUP, remember_signal);
    sigaction(SIGPIPE, nullptr, &pipe_before);
    handle(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
    handle(SIGINT, SIG_DFL);
    handle(SIGTERM, SIG_DFL);
    sigaction(SIGHUP, &hangup_before, nullptr);
    sigaction(SIGPIPE, &pipe_before, nullptr);
    in_use = false;
}

const std::atomic<int>& StopSignals::caught() const { return caught_signal; }

}  // namespace millrace::train
