// The threads that fill windows: what a step finds in them, what errors do, and that they end.

#include "data/stream/window_feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "data/stream/streamed_source.h"

namespace millrace::data {
namespace {

constexpr std::chrono::seconds kLong{20};

/// Rows of eight bytes that hold their own number.
base::Status number_rows(const WindowPlan& plan, std::uint32_t block, std::span<std::byte> rows) {
    for (std::uint64_t i = 0; i < rows.size() / 8; ++i) {
        const std::uint64_t row = std::uint64_t{block} * plan.block_rows + i;
        std::memcpy(rows.data() + i * 8, &row, 8);
    }
    return base::ok();
}

struct FeedRig {
    explicit FeedRig(int threads) {
        plan = {.seed = 3, .rows = 101, .block_rows = 4, .window_blocks = 1};
        plan.divide(7);
        table.resize(2 * plan.window_rows());
        FeedOptions options{.plan = plan, .row_bytes = 8, .threads = threads};
        options.read = [this](std::uint32_t block, std::span<std::byte> rows) -> base::Status {
            if (static_cast<int>(block) == failing.load()) return base::Error{"the disk is gone", "set.h5", 1};
            return number_rows(plan, block, rows);
        };
        backend = ops::make_backend(ops::DeviceKind::cpu, {}).value();
        feed = WindowFeed::create(*backend, reinterpret_cast<std::byte*>(table.data()), options).value();
    }
    /// What window `number` must hold.
    [[nodiscard]] std::vector<std::uint64_t> expected(std::uint64_t number) const {
        std::vector<std::uint64_t> rows;
        for (const std::uint32_t block : plan.blocks_of(static_cast<std::uint32_t>(number / plan.windows()),
                                                        static_cast<std::uint32_t>(number % plan.windows())))
            for (std::uint32_t i = 0; i < plan.rows_of_block(block); ++i) rows.push_back(block * plan.block_rows + i);
        return rows;
    }
    [[nodiscard]] std::vector<std::uint64_t> found(std::uint64_t number) const {
        const auto begin = table.begin() + static_cast<std::ptrdiff_t>(number % 2 * plan.window_rows());
        return {begin, begin + static_cast<std::ptrdiff_t>(expected(number).size())};
    }
    WindowPlan plan;
    std::vector<std::uint64_t> table;
    std::atomic<int> failing{-1};
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<WindowFeed> feed;
};

TEST(WindowFeed, WindowsFollowEachOtherOverEpochs) {
    for (const int threads : {1, 3}) {
        FeedRig rig(threads);
        const std::uint64_t end = 5 * rig.plan.windows();
        std::uint64_t bytes = 0;
        rig.feed->begin(2);
        for (std::uint64_t number = 2; number < end; ++number) {
            ASSERT_TRUE(rig.feed->wait_for(number, kLong).value());
            ASSERT_EQ(rig.found(number), rig.expected(number)) << "window " << number;
            bytes += 8 * rig.expected(number).size();
            rig.feed->release_below(number + 1);
        }
        EXPECT_GE(rig.feed->bytes(), bytes);
    }
}

TEST(WindowFeed, AHalfIsKeptUntilItIsReleased) {
    FeedRig rig(2);
    rig.feed->begin(0);
    ASSERT_TRUE(rig.feed->wait_for(1, kLong).value());
    ASSERT_TRUE(rig.feed->wait_for(0, kLong).value());
    EXPECT_FALSE(rig.feed->wait_for(2, std::chrono::milliseconds{20}).value()) << "nobody said that window 0 was read";
    EXPECT_EQ(rig.found(0), rig.expected(0));
    rig.feed->release_below(1);
    ASSERT_TRUE(rig.feed->wait_for(2, kLong).value());
    EXPECT_EQ(rig.found(1), rig.expected(1));
    EXPECT_EQ(rig.found(2), rig.expected(2));
}

TEST(WindowFeed, AnErrorComesToWhoWaitsAndReadingCanBeginAnew) {
    FeedRig rig(2);
    rig.failing = static_cast<int>(rig.plan.blocks_of(0, 1).front());
    rig.feed->begin(0);
    base::Result<bool> there = rig.feed->wait_for(1, kLong);
    ASSERT_FALSE(there.ok());
    EXPECT_EQ(there.error().text(), "set.h5: the disk is gone");
    EXPECT_EQ(there.error().exit_status, 1);
    rig.failing = -1;
    rig.feed->begin(1);
    ASSERT_TRUE(rig.feed->wait_for(1, kLong).value());
    EXPECT_EQ(rig.found(1), rig.expected(1));
}

TEST(WindowFeed, EndsInTheMiddleOfReading) {
    for (int i = 0; i < 20; ++i) {
        FeedRig rig(3);
        rig.feed->begin(static_cast<std::uint64_t>(i));
    }
}

TEST(StreamedRows, AStepOfTwoWindowsWaitsForBothWhenARunGoesOn) {
    const auto backend = ops::make_backend(ops::DeviceKind::cpu, {}).value();
    WindowPlan plan{.seed = 3, .rows = 101, .block_rows = 4, .window_blocks = 1};
    plan.divide(7);
    const std::uint32_t slow = plan.blocks_of(0, 1)[2];  // comes after the whole second window
    std::mutex mutex;
    std::condition_variable changed;
    bool returned = false;
    tape::Store store(*backend, {});
    StreamedRows rows(plan, 8, 2, true, [&](std::uint32_t block, std::span<std::byte> out) {
        if (block == slow) {
            std::unique_lock lock(mutex);
            changed.wait_for(lock, std::chrono::milliseconds{200}, [&] { return returned; });
        }
        return number_rows(plan, block, out);
    });
    rows.declare(store, "rows");
    ASSERT_TRUE(store.allocate().ok());
    ASSERT_TRUE(rows.start(store).ok());
    const std::uint32_t first = 2 * plan.window_rows() - 3;
    ASSERT_TRUE(rows.await({Part::train, 0, first, 6, 11}, [] { return base::Result<std::uint64_t>(11); }).ok());
    const auto* table = reinterpret_cast<const std::uint64_t*>(store.address(rows.table().buffer));
    const std::uint64_t found = table[plan.window_rows() + 2 * plan.block_rows];
    {
        const std::lock_guard lock(mutex);
        returned = true;
    }
    changed.notify_all();
    EXPECT_EQ(found, slow * plan.block_rows);
}

/// Steps of five rows that end some time after they were launched, as on a device.
TEST(StreamedRows, StepsOfAnySizeFindTheirRowsWhileOthersRun) {
    const auto backend = ops::make_backend(ops::DeviceKind::cpu, {}).value();
    for (const std::uint32_t step_rows : {5u, 13u, 28u}) {
        WindowPlan plan{.seed = 3, .rows = 101, .block_rows = 4, .window_blocks = 1};
        plan.divide(7);
        tape::Store store(*backend, {});  // outlives the threads that fill its table
        StreamedRows rows(plan, 8, 2, true,
                          [&](std::uint32_t block, std::span<std::byte> out) { return number_rows(plan, block, out); });
        ASSERT_LE(step_rows, rows.most_rows());
        rows.declare(store, "rows");
        ASSERT_TRUE(store.allocate().ok());
        ASSERT_TRUE(rows.start(store).ok());
        const auto* table = reinterpret_cast<const std::uint64_t*>(store.address(rows.table().buffer));
        std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> running;  // places in the table, what was there
        std::uint64_t step = 0, finished = 0;
        const auto finish_one = [&] {  // a step reads its rows at its end
            for (std::size_t i = 0; i < running[finished].second.size(); ++i)
                EXPECT_EQ(table[running[finished].second[i] % 1000], running[finished].second[i] / 1000) << "step " << finished;
            finished += 1;
        };
        const StepsDone done = [&]() -> base::Result<std::uint64_t> {
            if (finished < step) finish_one();
            return finished;
        };
        for (std::uint32_t epoch = 0; epoch < 4; ++epoch)
            for (std::uint32_t first = 0; first < plan.rows; first += step_rows, ++step) {
                const std::uint32_t count = std::min(step_rows, plan.rows - first);
                const auto there = rows.await({Part::train, epoch, first, count, step}, done);
                ASSERT_TRUE(there.ok());
                std::vector<std::uint64_t> reads;
                for (std::uint32_t q = first; q < first + count; ++q) {
                    const std::uint32_t window = q / plan.window_rows(), at = q % plan.window_rows();
                    const std::uint64_t number = std::uint64_t{epoch} * plan.windows() + window;
                    const std::uint64_t row =
                        std::uint64_t{plan.blocks_of(epoch, window)[at / plan.block_rows]} * plan.block_rows +
                        at % plan.block_rows;
                    reads.push_back(row * 1000 + number % 2 * plan.window_rows() + at);
                }
                running.emplace_back(step, std::move(reads));
            }
        while (finished < step) finish_one();
    }
}

}  // namespace
}  // namespace millrace::data
