#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "record/metrics.h"
#include "record/sink_rig.h"
#include "record/sinks.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using namespace test_rig;

TEST(JsonLinesSink, RowsReadBackAsTheyWere) {
    const test::TemporaryFolder folder;
    auto sink = json_lines_sink(folder / "a.jsonl");
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->write(row_of(busy_sample(3))).ok());
    ASSERT_TRUE((*sink)->write(training_row(RowKind::kEpoch, 42, std::numeric_limits<double>::quiet_NaN())).ok());
    for (const SinkRow& row : everything()) ASSERT_TRUE((*sink)->write(row).ok());
    const auto log = read_metrics(folder / "a.jsonl");
    ASSERT_TRUE(log.ok());
    ASSERT_EQ(log->rows.size(), 4u);
    EXPECT_EQ(log->skipped, 0u);
    EXPECT_EQ(std::get<std::string>(*log->rows[0].find("kind")), "sample");
    EXPECT_EQ(log->rows[0].number("time"), 1762257603.25);
    EXPECT_EQ(log->rows[0].find("step"), nullptr);
    EXPECT_EQ(log->rows[0].number("gpu0/power_watts"), 350.04);
    EXPECT_EQ(log->rows[0].find("gpu1/power_watts"), nullptr);
    EXPECT_EQ(std::get<std::string>(*log->rows[1].find("kind")), "epoch");
    EXPECT_EQ(log->rows[1].number("step"), 42);
    EXPECT_TRUE(std::isnan(log->rows[1].number("loss").value()));
    EXPECT_EQ(log->rows[1].number("step_ms_p50"), 2.5);
    const auto written = everything();
    for (std::size_t i = 2; i < 4; ++i)
        for (const Point& point : written[i - 2].points)
            EXPECT_EQ(log->rows[i].number(key_of(*point.metric, point.index)), point.value);
}

TEST(JsonLinesSink, GoesOnAfterATornLine) {
    const test::TemporaryFolder folder;
    {
        std::ofstream file(folder / "samples.jsonl");
        file << "{\"kind\": \"sample\", \"time\": 1}\n{\"kind\": \"sam";
    }
    {
        auto sink = json_lines_sink(folder / "samples.jsonl");
        ASSERT_TRUE(sink.ok());
        ASSERT_TRUE((*sink)->write(row_of(busy_sample(0))).ok());
    }
    const auto log = read_metrics(folder / "samples.jsonl");
    EXPECT_EQ(log->rows.size(), 2u);
    EXPECT_EQ(log->skipped, 1u);
}

TEST(JsonLinesSink, EveryRowIsThereAtOnce) {
    const test::TemporaryFolder folder;
    const auto path = folder / "a.jsonl";
    auto sink = json_lines_sink(path);
    for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE((*sink)->write(row_of(busy_sample(i))).ok());
        EXPECT_EQ(lines_of(path).size(), i + 1);
    }
}

}  // namespace
}  // namespace millrace::record
