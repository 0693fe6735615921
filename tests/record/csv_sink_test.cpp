#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "record/sink_rig.h"
#include "record/sinks.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using namespace test_rig;

/// Fields of one RFC 4180 line without line breaks in fields.
std::vector<std::string> fields_of(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"')
            fields.back() += line[++i];
        else if (line[i] == '"')
            quoted = !quoted;
        else if (line[i] == ',' && !quoted)
            fields.emplace_back();
        else
            fields.back() += line[i];
    }
    EXPECT_FALSE(quoted) << line;
    return fields;
}

std::string field(const std::vector<std::string>& header, const std::vector<std::string>& row, const std::string& name) {
    const auto at = std::find(header.begin(), header.end(), name);
    return at == header.end() ? "no such column" : row.at(static_cast<std::size_t>(at - header.begin()));
}

TEST(CsvSink, ColumnsFollowTheTableAndAbsentIsEmpty) {
    const test::TemporaryFolder folder;
    auto sink = csv_sink(folder / "a.csv", two_gpus());
    ASSERT_TRUE(sink.ok()) << sink.error().text();
    ASSERT_TRUE((*sink)->write(row_of(busy_sample(0))).ok());
    ASSERT_TRUE((*sink)->write(training_row(RowKind::kEpoch, 5, 1.0)).ok()) << "rows of training are passed over";
    ASSERT_TRUE((*sink)->write(row_of(sense::Sample{})).ok());
    const auto lines = lines_of(folder / "a.csv");
    ASSERT_EQ(lines.size(), 3u);
    const auto header = fields_of(lines[0]), busy = fields_of(lines[1]), idle = fields_of(lines[2]);
    ASSERT_EQ(header.size(), busy.size());
    ASSERT_EQ(header.size(), idle.size());
    std::vector<std::string> expected{"time"};
    for (const MetricInfo& metric : metric_table()) {
        if (metric.scope == MetricScope::kMachine) expected.push_back(key_of(metric, -1));
        if (metric.scope == MetricScope::kGpu || metric.scope == MetricScope::kCore)
            for (int i = 0; i < 2; ++i) expected.push_back(key_of(metric, i));
    }
    EXPECT_EQ(header, expected);
    EXPECT_EQ(busy[0], "1762257600.250");
    EXPECT_EQ(field(header, busy, "cpu/utilization_percent"), "45.25");
    EXPECT_EQ(field(header, busy, "cpu0/utilization_percent"), "90.5");
    EXPECT_EQ(field(header, busy, "cpu1/utilization_percent"), "");
    EXPECT_EQ(field(header, busy, "ram/used_bytes"), "18400000000");
    EXPECT_EQ(field(header, busy, "gpu0/utilization_percent"), "85");
    EXPECT_EQ(field(header, busy, "gpu1/utilization_percent"), "");
    EXPECT_EQ(field(header, idle, "cpu/utilization_percent"), "");
}

TEST(CsvSink, PointsBeyondTheFactsDoNotMoveColumns) {
    const test::TemporaryFolder folder;
    auto sink = csv_sink(folder / "a.csv", sense::MachineFacts{});
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->write(row_of(busy_sample(0))).ok());
    const auto lines = lines_of(folder / "a.csv");
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), ','), std::count(lines[1].begin(), lines[1].end(), ','));
    EXPECT_NE(lines[0].find("gpu0/"), std::string::npos) << "one GPU's columns are there without a GPU";
    EXPECT_EQ(lines[0].find("gpu1/"), std::string::npos);
}

TEST(CsvSink, WithoutAGpuItsColumnsAreThereAndEmpty) {
    const test::TemporaryFolder folder;
    auto sink = csv_sink(folder / "a.csv", sense::MachineFacts{});
    ASSERT_TRUE(sink.ok());
    sense::Sample sample = busy_sample(0);
    sample.gpus.clear();
    ASSERT_TRUE((*sink)->write(row_of(sample)).ok());
    const auto lines = lines_of(folder / "a.csv");
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(field(fields_of(lines[0]), fields_of(lines[1]), "gpu0/utilization_percent"), "");
    EXPECT_EQ(field(fields_of(lines[0]), fields_of(lines[1]), "gpu0/temperature_celsius"), "");
}

TEST(CsvSink, FolderThatIsMissingIsAnErrorWithItsPlace) {
    for (auto& sink : {csv_sink("/no/such/folder/a.csv", two_gpus()), monitor_csv_sink("/no/such/folder/a.csv", two_gpus()),
                       json_lines_sink("/no/such/folder/a.jsonl"), prometheus_file_sink("/no/such/folder/a.prom", two_gpus())}) {
        ASSERT_FALSE(sink.ok());
        EXPECT_NE(sink.error().text().find("/no/such/folder/a."), std::string::npos) << sink.error().text();
        EXPECT_EQ(sink.error().exit_status, 2);
    }
}

TEST(CsvSink, FullDiskIsAnErrorThatNamesTheFile) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
    const auto sink = csv_sink("/dev/full", two_gpus());
    ASSERT_FALSE(sink.ok());
    EXPECT_NE(sink.error().text().find("/dev/full"), std::string::npos);
}

TEST(MonitorCsv, HasTheElevenColumnsInOrder) {
    const test::TemporaryFolder folder;
    auto sink = monitor_csv_sink(folder / "m.csv", two_gpus());
    ASSERT_TRUE(sink.ok());
    const auto sample = busy_sample(0);
    ASSERT_TRUE((*sink)->write(row_of(sample)).ok());
    const auto lines = lines_of(folder / "m.csv");
    ASSERT_EQ(lines.size(), 4u) << "the second GPU's name has a line break, which stays inside its quotes";
    EXPECT_TRUE(lines[2].ends_with(",1,\"Wheel\\1"));
    EXPECT_TRUE(lines[3].starts_with("\","));
    EXPECT_EQ(lines[0],
              "timestamp,gpu_index,gpu_name,utilization_gpu_%,memory_used_mb,memory_total_mb,memory_usage_%,power_draw_w,"
              "power_limit_w,power_usage_%,temperature_c");
    const auto seconds = static_cast<std::time_t>(sample.wall);
    char local[32];
    std::strftime(local, sizeof local, "%Y-%m-%d %H:%M:%S", std::localtime(&seconds));
    EXPECT_EQ(fields_of(lines[1]), (std::vector<std::string>{local, "0", "Wheel 9000, \"fast\"", "85.0", "12288", "24576", "50.0",
                                                             "350.0", "700.0", "50.0", "61"}));
}

TEST(MonitorCsv, WhatWasNotReadIsEmptyNeverZero) {
    const test::TemporaryFolder folder;
    auto facts = two_gpus();
    facts.gpus[1].name = "Wheel";
    auto sink = monitor_csv_sink(folder / "m.csv", facts);
    ASSERT_TRUE((*sink)->write(row_of(busy_sample(0))).ok());
    const auto second = fields_of(lines_of(folder / "m.csv").at(2));
    ASSERT_EQ(second.size(), 11u);
    EXPECT_EQ(std::vector(second.begin() + 1, second.end()),
              (std::vector<std::string>{"1", "Wheel", "", "", "24576", "", "", "", "", ""}));
}

TEST(MonitorCsv, MachineWithoutGpuHasOneRowPerSample) {
    const test::TemporaryFolder folder;
    auto sink = monitor_csv_sink(folder / "m.csv", sense::MachineFacts{});
    for (int i = 0; i < 3; ++i) {
        auto sample = busy_sample(static_cast<std::uint64_t>(i));
        sample.gpus.clear();
        ASSERT_TRUE((*sink)->write(row_of(sample)).ok());
    }
    const auto lines = lines_of(folder / "m.csv");
    ASSERT_EQ(lines.size(), 4u);
    for (const std::string& line : lines) EXPECT_EQ(fields_of(line).size(), 11u);
    EXPECT_TRUE(lines[3].ends_with(",,,,,,,,,,"));
}

}  // namespace
}  // namespace millrace::record
