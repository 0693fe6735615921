#include "train/run_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

namespace millrace::train {
namespace {

/// Until the thread that takes signals has taken one.
template <class Condition>
void await(const Condition& condition) {
    while (!condition()) std::this_thread::yield();
}

/// In a process of its own: threads that other tests or CUDA left behind do not block these signals.
TEST(RunSignalsDeathTest, RemembersTheFirstAndCountsRequests) {
    EXPECT_EXIT(
        {
            RunSignals signals;
            bool right = signals.stop() == 0;
            for (std::uint32_t i = 1; i <= 3; ++i) {
                kill(getpid(), SIGUSR1);
                await([&] { return signals.saves() == i; });
            }
            right = right && signals.stop() == 0;
            kill(getpid(), SIGTERM);
            await([&] { return signals.stop() != 0; });
            _exit(right && signals.stop() == SIGTERM ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
}

/// Slurm warns by SIGUSR1 and may ask to end by SIGTERM before all is given back.
TEST(RunSignalsDeathTest, User1StopsWhereItIsAskedToAndLetsOthersFollow) {
    EXPECT_EXIT(
        {
            RunSignals signals(RunSignals::OnUser1::stop);
            kill(getpid(), SIGUSR1);
            await([&] { return signals.stop() == SIGUSR1; });
            kill(getpid(), SIGTERM);
            await([&] { return signals.stop() == SIGTERM; });
            const bool right = signals.saves() == 0;
            kill(getpid(), SIGUSR1);
            kill(getpid(), SIGINT);
            while (right) pause();
        },
        ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(RunSignals, MaskIsAsBeforeAfterwards) {
    sigset_t before, inside, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    {
        const RunSignals signals;
        pthread_sigmask(SIG_SETMASK, nullptr, &inside);
        for (const int number : {SIGINT, SIGTERM, SIGUSR1}) EXPECT_EQ(sigismember(&inside, number), 1);
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
        EXPECT_EQ(sigismember(&after, number), sigismember(&before, number)) << number;
}

TEST(RunSignalsDeathTest, TheSecondEndsTheProcessAtOnce) {
    EXPECT_EXIT(
        {
            RunSignals signals;
            kill(getpid(), SIGTERM);
            await([&] { return signals.stop() != 0; });
            kill(getpid(), SIGINT);
            while (true) pause();
        },
        ::testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace millrace::train
