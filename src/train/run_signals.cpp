#include "train/run_signals.h"

#include <signal.h>
#include <unistd.h>

namespace millrace::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

}  // namespace

RunSignals::RunSignals(OnUser1 on_user1) : on_user1_(on_user1), queue_(kSignals), thread_([this] { take(); }) {}

RunSignals::~RunSignals() {
    ending_ = true;
    queue_.wake();
    thread_.join();
}

void RunSignals::take() {
    while (!ending_) {
        const auto event = queue_.next(std::nullopt);
        if (!event) continue;
        if (event->number != SIGUSR1) {
            if (const int before = stop_.exchange(event->number); before != 0 && before != SIGUSR1) _exit(128 + event->number);
        } else if (on_user1_ == OnUser1::save) {
            saves_ += 1;
        } else {
            int none = 0;
            stop_.compare_exchange_strong(none, SIGUSR1);
        }
    }
}

}  // namespace millrace::train
