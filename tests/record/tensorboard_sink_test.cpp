#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/checksum.h"
#include "places.h"
#include "record/sink_rig.h"
#include "record/sinks.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using namespace test_rig;

TEST(Crc32c, AgreesWithThePublishedVectors) {
    EXPECT_EQ(io::crc32c(""), 0u);
    EXPECT_EQ(io::crc32c("123456789"), 0xe3069283u);
    EXPECT_EQ(io::crc32c(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(io::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

/// The only file in `folder`.
io::Path only_file(const io::Path& folder) {
    io::Path found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        EXPECT_TRUE(found.empty());
        found = entry.path();
    }
    return found;
}

TEST(TensorBoardSink, AnIndependentReaderFindsEveryValueAtItsStep) {
    const io::Path reader = testing::source_root() / "tests/tools/read_events.py";
    if (!std::filesystem::exists(reader) || run_command("python3 --version").status != 0)
        GTEST_SKIP() << "python3 or " << reader << " is not on this machine";
    const test::TemporaryFolder folder;
    {
        auto sink = tensorboard_sink(folder / "tensorboard");
        ASSERT_TRUE(sink.ok()) << sink.error().text();
        ASSERT_TRUE((*sink)->write(row_of(busy_sample(5))).ok());
        ASSERT_TRUE((*sink)->write(training_row(RowKind::kInterval, 1234567, 0.5)).ok());
        ASSERT_TRUE((*sink)->write(row_of(busy_sample(6))).ok());
        ASSERT_TRUE(
            (*sink)->write(SinkRow{RowKind::kComponents, 2.0, 1234570, {{find_metric("component/forward_ms"), -1, 1.5}}}).ok());
        ASSERT_TRUE((*sink)->write(SinkRow{RowKind::kEpoch, 3.0, 1234580, {}}).ok()) << "a row without values is no event";
        for (const SinkRow& row : everything()) ASSERT_TRUE((*sink)->write(row).ok());
    }
    const io::Path file = only_file(folder / "tensorboard");
    EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));
    const Outcome read = run_command("python3 '" + reader.string() + "' '" + file.string() + "'");
    ASSERT_EQ(read.status, 0) << read.output;
    std::vector<nlohmann::json> events;
    for (std::size_t at = 0, end = 0; (end = read.output.find('\n', at)) != std::string::npos; at = end + 1)
        events.push_back(base::json_or_throw(read.output.substr(at, end - at)));
    ASSERT_EQ(events.size(), 7u);
    EXPECT_EQ(events[0]["version"], "brain.Event:2");
    EXPECT_EQ(events[1]["step"], 5) << "before training: the tick";
    EXPECT_EQ(events[1]["time"], 1762257605.25);
    EXPECT_EQ(events[1]["values"]["gpu0/temperature_celsius"], 61.0);
    EXPECT_FALSE(events[1]["values"].contains("gpu1/temperature_celsius"));
    EXPECT_EQ(events[2]["step"], 1234567);
    EXPECT_EQ(events[2]["values"]["interval/loss"], 0.5);
    EXPECT_EQ(events[2]["values"]["interval/member_001/loss"], 0.25);
    EXPECT_EQ(events[3]["step"], 1234567) << "samples take the step of the newest training row";
    EXPECT_EQ(events[4]["values"]["component/forward_ms"], 1.5);
    EXPECT_EQ(events[5]["values"].size(), everything()[0].points.size());
    EXPECT_EQ(events[6]["values"].size(), everything()[1].points.size());
}

TEST(TensorBoardSink, TheReaderOfThisTestNoticesADamagedFile) {
    const io::Path reader = testing::source_root() / "tests/tools/read_events.py";
    if (!std::filesystem::exists(reader) || run_command("python3 --version").status != 0)
        GTEST_SKIP() << "python3 or " << reader << " is not on this machine";
    const test::TemporaryFolder folder;
    {
        auto sink = tensorboard_sink(folder.path());
        ASSERT_TRUE((*sink)->write(training_row(RowKind::kInterval, 1, 0.5)).ok());
    }
    const io::Path file = only_file(folder.path());
    auto bytes = io::read_text(file).value();
    bytes[bytes.size() - 9] ^= 1;
    ASSERT_TRUE(io::write_atomically(file, bytes).ok());
    EXPECT_EQ(run_command("python3 '" + reader.string() + "' '" + file.string() + "'").status, 1);
}

TEST(TensorBoardSink, TwoSinksOfOneSecondHaveTwoFiles) {
    const test::TemporaryFolder folder;
    const auto first = tensorboard_sink(folder.path()), second = tensorboard_sink(folder.path());
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_NE((*first)->name(), (*second)->name());
}

}  // namespace
}  // namespace millrace::record
