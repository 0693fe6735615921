#include "train/run_signals.h"

#include <signal.h>
#include <unistd.h>

namespace millrace::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

}  // namespace

RunSignals::RunSignals() : queue_(kSignals), thread_([this] { take(); }) {}

RunSignals::~RunSignals() {
    ending_ = true;
    queue_.wake();
    thread_.join();
}

void RunSignals::take() {
    while (!ending_) {
        const auto event = queue_.next(std::nullopt);
        if (!event) continue;
        if (event->number == SIGUSR1)
            saves_ += 1;
        else if (stop_.exchange(event->number) != 0)
            _exit(128 + event->number);
    }
}

}  // namespace millrace::train
