#include <algorithm>
#include <functional>

#include "record/run_directory.h"
#include "train/console.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

/// Notes every event of the training thread as a word.
class Recorder final : public Listener {
public:
    void on_start(const StartReport& report) override { note("start", report.first_step); }
    void on_epoch_begin() override { words += "begin "; }
    void on_wait(const StepWait& wait) override { note("wait", wait.step); }
    void on_timed_step(const TimedStep& timed) override { note("timed", timed.step); }
    base::Status on_step(std::uint64_t step) override {
        note("step", step);
        return after_step ? after_step(step) : base::ok();
    }
    void on_interval(IntervalReport&) override {
        if (stop_at_interval) request_stop();
    }
    base::Status on_epoch(EpochReport& report) override {
        note("epoch", report.epoch);
        if (at_epoch) at_epoch(report);
        return base::ok();
    }
    base::Status on_stop(RunResult& result) override {
        note("stop", result.step);
        return base::ok();
    }
    void on_finish(const RunResult& result) override { note("finish", result.step); }

    std::string words;
    std::function<base::Status(std::uint64_t)> after_step;
    std::function<void(const EpochReport&)> at_epoch;
    bool stop_at_interval = false;

private:
    void note(const char* event, std::uint64_t number) { words += event + std::to_string(number) + " "; }
};

/// Seven steps per epoch.
class LoopEvents : public TinyRun {
protected:
    base::Result<RunResult> listen(const std::string& name, std::vector<std::string> settings, bool resume = false) {
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        settings.emplace_back("telemetry.interval=0s");
        return train(recipe(std::move(settings)), request, {&recorder_, &observer_});
    }
    std::ptrdiff_t epoch_rows(const std::string& name) const {
        const auto log = record::read_metrics(folder_ / name / "metrics.jsonl");
        return std::ranges::count_if(
            log->rows, [](const record::MetricsRow& row) { return std::get<std::string>(*row.find("kind")) == "epoch"; });
    }
    Recorder recorder_;
};

TEST_F(LoopEvents, ComeInTheOrderOfARun) {
    ASSERT_TRUE(listen("a", {"train.steps=9", "telemetry.components=on"}).ok());
    EXPECT_EQ(recorder_.words,
              "start0 begin wait1 step1 wait2 timed2 step2 wait3 step3 wait4 step4 wait5 step5 wait6 step6 "
              "wait7 epoch1 begin step7 wait8 step8 wait9 step9 epoch2 begin stop9 finish9 ");
    recorder_.words.clear();
    ASSERT_TRUE(listen("a", {"train.steps=9"}, true).ok());
    EXPECT_EQ(recorder_.words, "start9 begin stop9 finish9 ");
}

TEST_F(LoopEvents, ListenerFromOutsideFindsTheEpochOnTheDisk) {
    bool saved = false;
    std::ptrdiff_t rows = 0;
    recorder_.at_epoch = [&](const EpochReport& report) {
        saved = std::filesystem::exists(folder_ / "a/checkpoints/step-00000007");
        rows = epoch_rows("a");
        EXPECT_EQ(report.validation.size(), 1u);
    };
    ASSERT_TRUE(listen("a", {"train.epochs=1"}).ok());
    EXPECT_TRUE(saved);
    EXPECT_EQ(rows, 1);
}

TEST_F(LoopEvents, StopOfAListenerEndsTheRunAfterTheStepAndSaves) {
    recorder_.after_step = [&](std::uint64_t step) {
        if (step == 3) recorder_.request_stop();
        return base::ok();
    };
    const auto result = listen("a", {});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(result->stopped);
    EXPECT_EQ(result->signal, 0);
    EXPECT_EQ(result->step, 3u);
    EXPECT_TRUE(recorder_.words.ends_with("step3 stop3 finish3 ")) << recorder_.words;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000003/state.json"));
    EXPECT_EQ(finish_text(*result), "stopped after step 3; saved. --resume --out " + result->run + " continues");
    const auto manifest = record::read_manifest(folder_ / "a");
    ASSERT_TRUE(manifest.ok()) << manifest.error().text();
    EXPECT_EQ(manifest->status, record::RunStatus::kInterrupted);
    EXPECT_EQ(manifest->exit_status, 0);

    // The request was for that run: the next one of the same listener goes on to its end.
    recorder_.after_step = {};
    const auto resumed = listen("a", {}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_FALSE(resumed->stopped);
    ASSERT_TRUE(run("whole", {}).ok());
    EXPECT_EQ(last("a"), last("whole"));
    EXPECT_EQ(last("a", "optimizer.safetensors"), last("whole", "optimizer.safetensors"));
}

TEST_F(LoopEvents, StopMayComeFromTheThreadOfIntervals) {
    recorder_.stop_at_interval = true;
    const auto result = listen("a", {"train.epochs=100000", "train.log_interval=1ms"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(result->stopped);
    EXPECT_LT(result->step, 700000u);
}

TEST_F(LoopEvents, ErrorOfAListenerEndsTheRunAsAFailure) {
    recorder_.after_step = [](std::uint64_t step) -> base::Status {
        if (step == 2) return base::Error{"no more", "listener", 1};
        return base::ok();
    };
    const auto result = listen("a", {});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().text().find("no more"), std::string::npos) << result.error().text();
    EXPECT_TRUE(recorder_.words.ends_with("wait2 step2 ")) << recorder_.words;
    EXPECT_EQ(record::read_manifest(folder_ / "a")->status, record::RunStatus::kFailed);
}

}  // namespace
}  // namespace millrace::train
