#include "diagnose/reading/timeline_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "diagnose/recorded_run.h"
#include "places.h"

namespace millrace::diagnose {
namespace {

namespace fs = std::filesystem;

void write_training(const io::Path& folder) {
    record::RunDirectory run = new_run(folder, "cuda:1 NVIDIA H200");
    write_lines(folder / "metrics.jsonl",
                "{\"kind\":\"interval\",\"time\":1700000010.0,\"seconds\":10,\"step\":100,\"epoch\":1,\"steps\":100,"
                "\"steps_per_second\":50,\"loader_wait_ms_mean\":5.5}\n"
                "{\"kind\":\"epoch\",\"time\":1700000011.0,\"steps_per_second\":50,\"steps\":100}\n"
                "{\"kind\":\"interval\",\"time\":1700000014.0,\"steps\":100,\"steps_per_second\":25}\n"
                "{\"kind\":\"interval\",\"time\":1700000014.0,\"steps\":100,\"steps_per_second\":null}\n"
                "{\"kind\":\"interval\",\"time\":1e300,\"steps\":1e300,\"steps_per_second\":1e-300}\n");
    write_lines(folder / "samples.jsonl",
                "{\"kind\":\"sample\",\"time\":1700000009,\"gpu0/utilization_percent\":1,\"gpu1/utilization_percent\":55}\n");
    ASSERT_TRUE(run.finish(record::RunStatus::kFinished, 0).ok());
}

class TimelineReader : public ::testing::Test {
protected:
    test::TemporaryFolder folder_;
};

TEST_F(TimelineReader, ARunOfTrainGivesBlocksAndSamplesOfItsGpu) {
    write_training(folder_ / "run");
    const auto timeline = read_timeline(folder_ / "run");
    ASSERT_TRUE(timeline.ok()) << timeline.error().text();
    EXPECT_EQ(timeline->source, Source::kTraining);
    ASSERT_EQ(timeline->blocks.size(), 2u);
    EXPECT_EQ(timeline->blocks[0].end - timeline->blocks[0].begin, 2'000'000'000);
    EXPECT_EQ(timeline->blocks[0].loader_wait_ms, 5.5);
    EXPECT_FALSE(timeline->blocks[1].loader_wait_ms);
    ASSERT_EQ(timeline->machine.size(), 1u);
    EXPECT_EQ(timeline->machine[0].gpu_utilization, 0.55);
    EXPECT_GT(timeline->machine[0].time, timeline->blocks[0].begin);
    EXPECT_LT(timeline->machine[0].time, timeline->blocks[0].end);
    EXPECT_NE(timeline->remarks.at(0).find("has no trace"), std::string::npos);
}

TEST_F(TimelineReader, EveryKindOfPathIsRecognised) {
    write_recording(folder_ / "recorded");
    EXPECT_EQ(read_timeline(folder_ / "recorded")->source, Source::kRecording);
    EXPECT_EQ(read_timeline(folder_ / "recorded" / "trace.bin")->source, Source::kRecording);
    const auto trace = testing::source_root() / "tests/goldens/kineto/plain.json";
    EXPECT_EQ(read_timeline(trace)->source, Source::kKineto);
    fs::create_directory(folder_ / "log");
    fs::copy_file(trace, folder_ / "log" / "host.123.pt.trace.json");
    EXPECT_EQ(read_timeline(folder_ / "log")->title, "host.123.pt.trace.json");
    fs::copy_file(trace, folder_ / "log" / "host.124.pt.trace.json");
    EXPECT_NE(read_timeline(folder_ / "log").error().message.find("holds 2 traces"), std::string::npos);
}

TEST_F(TimelineReader, WhatIsNeitherIsAnErrorThatSaysWhatWouldBe) {
    const auto missing = read_timeline(folder_ / "nowhere");
    EXPECT_EQ(missing.error().text(), (folder_ / "nowhere").string() + ": does not exist");
    EXPECT_EQ(missing.error().exit_status, 2);
    EXPECT_NE(read_timeline(folder_.path()).error().message.find("neither a run directory"), std::string::npos);
    { const record::RunDirectory run = new_run(folder_ / "empty"); }
    EXPECT_EQ(read_timeline(folder_ / "empty").error().exit_status, 4);
    write_lines(folder_ / "empty" / "trace.bin", "something else entirely");
    EXPECT_EQ(read_timeline(folder_ / "empty").error().exit_status, 2);
}

TEST_F(TimelineReader, ProgressGrowsToOne) {
    write_recording(folder_ / "recorded");
    double last = 0;
    ASSERT_TRUE(read_timeline(folder_ / "recorded", [&](double share) {
                    EXPECT_GE(share, last);
                    last = share;
                }).ok());
    EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace millrace::diagnose
