#pragma once
// Signals as events for one thread to wait for, instead of handlers that interrupt any of them.

#include <signal.h>

#include <chrono>
#include <optional>
#include <span>

namespace millrace::base {

struct SignalEvent {
    int number = 0;
    bool from_terminal = false;  ///< Ctrl-C and its like: the whole foreground process group got it, children included
};

/// Blocks `signals` for as long as it lives and hands them out one by one. A signal that is ignored when the queue begins (SIGHUP
/// under nohup) stays ignored. Make it before any other thread starts: threads inherit the blocking, so that no signal gets past
/// the queue. What is still pending at the end takes its ordinary course then.
class SignalQueue {
public:
    /// Throws std::system_error where the process may have no more descriptors.
    explicit SignalQueue(std::span<const int> signals);
    ~SignalQueue();
    SignalQueue(const SignalQueue&) = delete;
    SignalQueue& operator=(const SignalQueue&) = delete;

    /// The next signal; nothing when `timeout` is over or wake() was called. Without a timeout it waits for good.
    std::optional<SignalEvent> next(std::optional<std::chrono::nanoseconds> timeout);
    /// Makes next() return, now or when it is called next. From any thread.
    void wake();

private:
    sigset_t before_{};
    int signals_ = -1, woken_ = -1;  ///< signalfd and eventfd
};

}  // namespace millrace::base
