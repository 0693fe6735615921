#include "record/metrics.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "fake_clock.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

TEST(EventWriter, EventsAreRowsWithTimeKindAndText) {
    const test::TemporaryFolder folder;
    const base::FakeClock clock(std::chrono::milliseconds{12345});
    auto writer = EventWriter::open(folder.path() / "events.jsonl", clock);
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    ASSERT_TRUE(writer->append("warning", "a \"sentence\"\nof two lines", {{"step", std::int64_t{7}}}).ok());
    const auto log = read_metrics(folder.path() / "events.jsonl");
    ASSERT_TRUE(log.ok());
    ASSERT_EQ(log->rows.size(), 1u);
    EXPECT_EQ(log->rows[0].number("time"), 12.345);
    EXPECT_EQ(std::get<std::string>(*log->rows[0].find("kind")), "warning");
    EXPECT_EQ(std::get<std::string>(*log->rows[0].find("text")), "a \"sentence\"\nof two lines");
    EXPECT_EQ(log->rows[0].number("step"), 7);
}

TEST(EventWriter, ThreadsDoNotTearEachOthersLines) {
    const test::TemporaryFolder folder;
    auto writer = EventWriter::open(folder.path() / "events.jsonl");
    ASSERT_TRUE(writer.ok());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 100; ++n) EXPECT_TRUE(writer->append("note", std::string(300, 'x')).ok());
        });
    for (std::thread& thread : threads) thread.join();
    const auto log = read_metrics(folder.path() / "events.jsonl");
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->rows.size(), 400u);
    EXPECT_EQ(log->skipped, 0u);
}

}  // namespace
}  // namespace millrace::record
