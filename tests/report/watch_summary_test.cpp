#include "report/watch_summary.h"
#include "base/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/made_up.h"

namespace millrace::report {
namespace {

using Json = nlohmann::json;

WatchOutcome outcome_of(const WatchRecord& record) {
    WatchOutcome outcome;
    outcome.seconds = 19;
    outcome.samples = record.summary().samples();
    outcome.missed = record.missed();
    outcome.sampler_cpu_seconds = 0.019;
    outcome.program_cpu_seconds = 0.038;
    return outcome;
}

const auto kUnchanged = [](sense::Sample&) {};

TEST(WatchSummary, TextNamesFiguresEnergyScheduleAndCost) {
    const WatchRecord record = made_up_record(1, kUnchanged);
    const std::string text = summary_text(record, outcome_of(record));
    for (const char* part :
         {"20 samples, 0 missed", "average", "median", "p95", "gpu0 utilization", "cpu utilization", "ram used",
          "2850 J (0.7917 Wh) by its counter over 19.0s", "150.0 W on average", "memory of GPU 0: 6.0 GiB of 24.0 GiB (25.0 %)",
          "0.10 ms median", "0.01 % of the interval", "sampler 0.10 % of one core", "verdict"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
    EXPECT_EQ(text.back(), '\n');
    EXPECT_EQ(text.find("nan"), std::string::npos);
}

TEST(WatchSummary, BitsAreNotAveragedAndWhatWasLeftOutIsSaid) {
    const WatchRecord record = made_up_record(1, kUnchanged);
    EXPECT_EQ(summary_text(record, outcome_of(record)).find("throttle reasons"), std::string::npos);
    sense::MachineFacts facts = record.facts();
    facts.gpu_note = "CUDA_VISIBLE_DEVICES names no GPU with '5'; what follows it is hidden";
    const WatchRecord noted(facts, record.interval());
    EXPECT_NE(summary_text(noted, outcome_of(noted)).find("note       " + facts.gpu_note), std::string::npos);
    EXPECT_EQ(base::json_or_throw(summary_json(noted, outcome_of(noted))).at("machine").at("gpu_note"), facts.gpu_note);
}

TEST(WatchSummary, TextSaysThatThereIsNoGpu) {
    const WatchRecord record = made_up_record(0, kUnchanged);
    const std::string text = summary_text(record, outcome_of(record));
    EXPECT_NE(text.find("no GPU     no driver"), std::string::npos) << text;
    EXPECT_EQ(text.find("energy"), std::string::npos);
    EXPECT_EQ(text.find("gpu0"), std::string::npos);
}

TEST(WatchSummary, EnergyWithoutACounterIsNotMeasured) {
    const WatchRecord record = made_up_record(1, [](sense::Sample& sample) { sample.gpus[0].energy_joules.reset(); });
    EXPECT_NE(summary_text(record, outcome_of(record)).find("GPU 0: not measured"), std::string::npos);
    const Json json = base::json_or_throw(summary_json(record, outcome_of(record)));
    EXPECT_TRUE(json.at("energy").at(0).at("joules").is_null());
}

TEST(WatchSummary, EnergyOfALostGpuStatesItsOwnWindow) {
    const WatchRecord record = made_up_record(1, [](sense::Sample& sample) {
        if (sample.sequence <= 10) return;
        sample.gpus[0] = {};
        sample.gpus[0].lost = true;
    });
    EXPECT_NE(summary_text(record, outcome_of(record)).find("1500 J (0.4167 Wh) by its counter over 10.0s"), std::string::npos);
    EXPECT_EQ(base::json_or_throw(summary_json(record, outcome_of(record))).at("energy").at(0).at("window_seconds"), 10);
}

TEST(WatchSummary, JsonHasItsKeysAndFigures) {
    WatchRecord record = made_up_record(2, kUnchanged);
    WatchOutcome outcome = outcome_of(record);
    outcome.command = {"sh", "-c", "exit \"3\"\xff"};
    outcome.command_status = 3;
    outcome.lost_outputs = {"CSV f.csv: disk full"};
    const std::string line = summary_json(record, outcome);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const Json json = base::json_or_throw(line);
    EXPECT_EQ(json.at("kind"), "summary");
    EXPECT_EQ(json.at("version"), kWatchSummaryVersion);
    EXPECT_EQ(json.at("exit_status"), 3);
    EXPECT_EQ(json.at("command").size(), 3u);
    EXPECT_EQ(json.at("machine").at("gpus").size(), 2u);
    EXPECT_TRUE(json.at("machine").at("no_gpu").is_null());
    EXPECT_EQ(json.at("schedule").at("samples"), 20);
    EXPECT_NEAR(json.at("schedule").at("late_percent_p95").get<double>(), 0.01, 1e-9);
    EXPECT_NEAR(json.at("cost").at("sampler_percent_of_one_core").get<double>(), 0.1, 1e-9);
    EXPECT_EQ(json.at("metrics").at("gpu1/power_watts").at("mean"), 150);
    EXPECT_EQ(json.at("metrics").at("gpu1/power_watts").at("unit"), "watts");
    EXPECT_EQ(json.at("metrics").at("cpu2/utilization_percent").at("count"), 20);
    EXPECT_EQ(json.at("energy").at(1).at("joules"), 2850);
    EXPECT_EQ(json.at("findings").at(0).at("kind"), "utilization_only");
    EXPECT_EQ(json.at("lost_outputs").size(), 1u);
}

TEST(WatchSummary, OneSampleAndNoneAreSaidAsTheyAre) {
    const WatchRecord one = made_up_record(1, kUnchanged, true, 1);
    const std::string text = summary_text(one, outcome_of(one));
    EXPECT_NE(text.find("1 sample, 0 missed"), std::string::npos);
    EXPECT_NE(text.find("too few samples"), std::string::npos);
    EXPECT_NE(text.find("GPU 0: not measured"), std::string::npos);
    const WatchRecord none = made_up_record(1, kUnchanged, true, 0);
    EXPECT_NE(summary_text(none, {}).find("0 samples"), std::string::npos);
    const Json json = base::json_or_throw(summary_json(none, {}));
    EXPECT_TRUE(json.at("schedule").at("late_ms_p50").is_null());
    EXPECT_TRUE(json.at("cost").at("sampler_percent_of_one_core").is_null());
}

TEST(WatchSummary, MissedTicksAreCounted) {
    WatchRecord record(made_up_facts(0), std::chrono::seconds{1});
    for (const std::uint64_t tick : {0u, 1u, 5u, 6u}) record.add(made_up_sample(tick));
    EXPECT_EQ(record.missed(), 3u);
}

}  // namespace
}  // namespace millrace::report
