#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "ops/cpu/thread_pool.h"

namespace millrace::ops::cpu {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceWithAValidWorker) {
    for (const int threads : {1, 2, 3, 7}) {
        ThreadPool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (const int tasks : {0, 1, 2, 5, 64, 1000}) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(tasks));
            std::atomic<bool> strange{false};
            pool.for_each(tasks, [&](int task, int worker) {
                seen[static_cast<std::size_t>(task)] += 1;
                if (worker < 0 || worker >= threads) strange = true;
            });
            for (const auto& count : seen) EXPECT_EQ(count, 1);
            EXPECT_FALSE(strange);
        }
    }
}

TEST(ThreadPool, ManyShortJobsSeeWhatTheLastOneWrote) {
    ThreadPool pool(3);
    std::vector<int> values(37, 0);  // plain ints: a job that overlapped another would be a race
    for (int round = 0; round < 2000; ++round)
        pool.for_each(37, [&](int task, int) {
            values[static_cast<std::size_t>(task)] += round + values[static_cast<std::size_t>(task)] % 2;
        });
    for (const int value : values) EXPECT_EQ(value, values[0]);
}

TEST(ThreadPool, ZeroThreadsMeansOnePerProcessor) { EXPECT_GE(ThreadPool(0).threads(), 1); }

TEST(ThreadPool, WorkersThatSleptComeBack) {
    ThreadPool pool(2);
    for (int round = 0; round < 5; ++round) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);  // longer than workers spin
        while (std::chrono::steady_clock::now() < until) {
        }
        std::atomic<int> sum{0};
        pool.for_each(10, [&](int task, int) { sum += task; });
        EXPECT_EQ(sum, 45);
    }
}

TEST(FlushDenormals, SmallNumbersVanishInsideAndSurviveOutside) {
    volatile float tiny = 1e-30f;
    {
        FlushDenormals flush;
        EXPECT_EQ(tiny * 1e-12f, 0.0f);
    }
    EXPECT_GT(tiny * 1e-12f, 0.0f);
}

}  // namespace
}  // namespace millrace::ops::cpu
