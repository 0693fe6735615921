// Nothing is lost: checkpoints by time and on request, damaged and lost files, full disks, stops at any moment.
#include <sys/fsuid.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/json.h"
#include "captured_log.h"
#include "fake_clock.h"
#include "io/checkpoint.h"
#include "record/run_directory.h"
#include "small_disk.h"
#include "train/evaluate.h"
#include "train/hooked_source.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

/// Seven steps per epoch.
class Keeping : public TinyRun {
protected:
    base::Result<RunResult> run_hooked(const std::string& name, std::vector<std::string> settings, HookedSource::Hook hook) {
        settings.emplace_back("telemetry.interval=0s");
        TrainRequest request;
        request.out = folder_ / name;
        request.stop = &stop_;
        request.saves = &saves_;
        request.adapt_source = [&](std::unique_ptr<data::BatchSource> inner) {
            return std::make_unique<HookedSource>(std::move(inner), hook);
        };
        return train(recipe(std::move(settings)), request, {&observer_}, clock_);
    }
    /// What a process that is killed now would leave.
    void copy_run(const std::string& from, const std::string& to) const {
        fs::copy(folder_ / from, folder_ / to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
    bool has(const std::string& below) const { return fs::exists(folder_ / below); }
    bool logged(const std::string& words) const { return log_.text().find(words) != std::string::npos; }
    void expect_equal(const std::string& a, const std::string& b) const {
        EXPECT_EQ(last(a), last(b));
        EXPECT_EQ(last(a, "optimizer.safetensors"), last(b, "optimizer.safetensors"));
    }
    std::vector<record::MetricsRow> rows(const std::string& name, const std::string& kind) const {
        const auto log = record::read_metrics(folder_ / name / "metrics.jsonl");
        std::vector<record::MetricsRow> found;
        for (const record::MetricsRow& row : log->rows)
            if (std::get<std::string>(*row.find("kind")) == kind) found.push_back(row);
        return found;
    }

    std::atomic<int> stop_{0};
    std::atomic<std::uint32_t> saves_{0};
    base::FakeClock clock_;
    test::CapturedLog log_;
};

TEST_F(Keeping, CheckpointsByTimeReplaceEachOtherAndResumeToTheBit) {
    std::map<std::uint64_t, std::string> names;
    const auto hook = [&](std::uint64_t step) {
        clock_.advance(std::chrono::seconds{1});
        if (step == 5) copy_run("a", "killed");
        for (const auto& entry : fs::directory_iterator(folder_ / "a/checkpoints"))
            if (!entry.is_symlink()) names[step] += entry.path().filename().string() + " ";
    };
    const auto result = run_hooked("a", {"checkpoint.every_time=3s"}, hook);
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(names[2], "");
    EXPECT_EQ(names[3], "timed-00000003 ");
    EXPECT_EQ(names[6], "timed-00000006 ");
    EXPECT_EQ(names[7], "step-00000007 ");

    ASSERT_TRUE(run("killed", {}, true).ok());
    EXPECT_EQ(observer_.starts.back().first_step, 3u);
    ASSERT_TRUE(run("whole", {}).ok());
    expect_equal("a", "whole");
    expect_equal("killed", "whole");
    ASSERT_EQ(rows("killed", "epoch").size(), 2u);
    EXPECT_EQ(rows("killed", "epoch")[0].number("train_loss"), rows("whole", "epoch")[0].number("train_loss"));
    double steps = 0;
    for (const record::MetricsRow& row : rows("killed", "interval")) steps += *row.number("steps");
    EXPECT_EQ(steps, 14);
}

TEST_F(Keeping, NoCheckpointsByTimeWhenOff) {
    bool any = false;
    ASSERT_TRUE(run_hooked("a", {"checkpoint.every_time=0s"}, [&](std::uint64_t step) {
                    clock_.advance(std::chrono::hours{1});
                    any |= step < 7 && has("a/checkpoints/last");
                }).ok());
    EXPECT_FALSE(any);
}

TEST_F(Keeping, RequestSavesAndTheRunGoesOn) {
    bool saved = false;
    const auto result = run_hooked("a", {}, [&](std::uint64_t step) {
        if (step == 2) saves_ += 1;
        if (step == 3) saved = has("a/checkpoints/step-00000003/state.json") && has("a/checkpoints/last");
    });
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(saved);
    EXPECT_EQ(result->step, 14u);
    ASSERT_TRUE(run("whole", {}).ok());
    expect_equal("a", "whole");
}

TEST_F(Keeping, RunThatIsMovedGoesOnWhereItIs) {
    const auto hook = [&](std::uint64_t step) {
        if (step != 3) return;
        fs::rename(folder_ / "a", folder_ / "moved");
        ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    };
    const auto result = run_hooked("a", {"checkpoint.keep=1"}, hook);
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(result->run, fs::canonical(folder_ / "moved"));
    EXPECT_TRUE(logged("was moved while it trained"));
    EXPECT_EQ(record::read_manifest(folder_ / "moved")->status, record::RunStatus::kFinished);
    ASSERT_TRUE(run("whole", {}).ok());
    expect_equal("moved", "whole");
    ASSERT_TRUE(run("other", {"train.epochs=1"}).ok());
    expect_equal("a", "other");
    for (const char* kind : {"epoch", "test"}) EXPECT_EQ(rows("a", kind).size(), 1u) << "rows of the new run alone";
}

TEST_F(Keeping, LinkInTheRunsPlaceLeadsToNothingThatIsTouched) {
    fs::create_directories(folder_ / "precious/checkpoints/step-00000001");
    const auto hook = [&](std::uint64_t step) {
        if (step != 3) return;
        fs::rename(folder_ / "a", folder_ / "moved");
        fs::create_directory_symlink("precious", folder_ / "a");
    };
    const auto result = run_hooked("a", {"checkpoint.keep=1"}, hook);
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(has("moved/checkpoints/step-00000014"));
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "precious")) found.push_back(entry.path().filename());
    EXPECT_EQ(found, (std::vector<fs::path>{"checkpoints", "step-00000001"}));
}

TEST_F(Keeping, RunWhoseFolderIsRemovedStopsAndSaysSoOnce) {
    const auto result = run_hooked("a", {"train.epochs=50"}, [&](std::uint64_t step) {
        if (step == 3) fs::remove_all(folder_ / "a");
    });
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().exit_status, 1);
    EXPECT_NE(result.error().text().find("was removed while it trained, so training stopped at step 7"), std::string::npos)
        << result.error().text();
    EXPECT_EQ(log_.text().find("cannot"), std::string::npos) << log_.text();
    EXPECT_FALSE(has("a"));
}

TEST_F(Keeping, DamagedNewestCheckpointFallsBackToTheOneBefore) {
    ASSERT_TRUE(run("whole", {"train.epochs=4"}).ok());
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
        const std::string name = std::string("a") + file;
        ASSERT_TRUE(run(name, {"train.epochs=3"}).ok());
        const auto path = folder_ / name / "checkpoints/last" / file;
        fs::resize_file(path, fs::file_size(path) / 2);
        log_.clear();
        const auto resumed = run(name, {"train.epochs=4"}, true);
        ASSERT_TRUE(resumed.ok()) << resumed.error().text();
        EXPECT_EQ(observer_.starts.back().first_step, 14u);
        EXPECT_TRUE(logged("step-00000021") && logged(file) && logged("damaged; going on from step 14")) << log_.text();
        expect_equal(name, "whole");
        EXPECT_EQ(bytes(name + "/checkpoints/best/model.safetensors"), bytes("whole/checkpoints/best/model.safetensors"));
    }
}

TEST_F(Keeping, UnreadableCheckpointIsNoDamagedOne) {
    ASSERT_TRUE(run("a", {"train.epochs=2"}).ok());
    fs::permissions(folder_ / "a/checkpoints/last/model.safetensors", fs::perms::none);
    // Root reads everything, so the files are read as another user.
    fs::permissions(folder_, fs::perms(0755));
    fs::permissions(folder_ / "a/.lock", fs::perms(0666));
    if (geteuid() == 0) setfsuid(65534);
    const auto refused = run("a", {"train.epochs=3"}, true);
    if (geteuid() == 0) setfsuid(0);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 1);
    EXPECT_NE(refused.error().text().find("move it away"), std::string::npos) << refused.error().text();
}

TEST_F(Keeping, CheckpointOfANewerFormatIsNoDamagedOne) {
    ASSERT_TRUE(run("a", {"train.epochs=2"}).ok());
    const auto path = folder_ / "a/checkpoints/last/state.json";
    auto state = base::json_or_throw(bytes("a/checkpoints/last/state.json"));
    state["checkpoint"]["format"] = 2;
    std::ofstream(path) << base::json_text(state);
    const auto refused = run("a", {"train.epochs=3"}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("format 2"), std::string::npos) << refused.error().text();
    EXPECT_NE(refused.error().text().find("move it away"), std::string::npos) << refused.error().text();
}

TEST_F(Keeping, CheckpointOfMoreOrFewerMembersIsRefused) {
    ASSERT_TRUE(run("a", {"train.epochs=1", "members=3"}).ok());
    const std::string before = bytes("a/checkpoints/last/state.json");
    for (const bool more : {false, true}) {
        auto state = base::json_or_throw(before);
        for (const char* list : {"members", "epoch_sums"})
            more ? state[list].push_back(state[list].back()) : state[list].erase(2);
        state["best"] = nullptr;
        state.erase("staleness");
        std::ofstream(folder_ / "a/checkpoints/last/state.json") << base::json_text(state);
        const auto refused = run("a", {"train.epochs=2", "members=3"}, true);
        ASSERT_FALSE(refused.ok()) << more;
        EXPECT_NE(refused.error().text().find("number of members"), std::string::npos) << refused.error().text();
    }
}

TEST_F(Keeping, MetricsThatGrewAgainAfterALossAreNotCutInALine) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    const auto path = folder_ / "a/metrics.jsonl";
    const auto expected = fs::file_size(path);
    std::ofstream(path) << std::string(expected + 10, ' ') << "\n";
    const auto resumed = run("a", {"train.epochs=2"}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_TRUE(logged("rows were lost")) << log_.text();
    EXPECT_EQ(bytes("a/metrics.jsonl").find('\n'), expected + 10) << "the line is whole";
}

TEST_F(Keeping, LostMetricsHoldBackNoHealthyWeights) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    fs::remove(folder_ / "a/metrics.jsonl");
    const auto resumed = run("a", {"train.epochs=2"}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_TRUE(logged("rows were lost")) << log_.text();
    EXPECT_EQ(rows("a", "epoch").size(), 1u);
    ASSERT_TRUE(run("whole", {"train.epochs=2"}).ok());
    expect_equal("a", "whole");
}

TEST_F(Keeping, LostCheckpointsAreNoReasonToBeginAnew) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    ASSERT_TRUE(run_hooked("b", {"train.epochs=2"}, [&](std::uint64_t step) {
                    if (step == 8) copy_run("b", "killed");
                }).ok());
    for (const char* name : {"a", "killed"}) {
        fs::remove_all(folder_ / name / "checkpoints");
        const std::string before = bytes(std::string(name) + "/metrics.jsonl");
        const auto refused = run(name, {"train.epochs=2"}, true);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().exit_status, 2);
        EXPECT_NE(refused.error().text().find("another --out"), std::string::npos) << refused.error().text();
        EXPECT_EQ(bytes(std::string(name) + "/metrics.jsonl"), before);
    }
}

TEST_F(Keeping, RunKilledBeforeItsFirstCheckpointBeginsAnewAndSaysSo) {
    ASSERT_TRUE(run_hooked("a", {}, [&](std::uint64_t step) {
                    if (step == 3) copy_run("a", "killed");
                }).ok());
    ASSERT_TRUE(run("killed", {}, true).ok());
    EXPECT_EQ(observer_.starts.back().first_step, 0u);
    EXPECT_TRUE(logged("before its first checkpoint: training begins anew")) << log_.text();
    expect_equal("killed", "a");
}

TEST_F(Keeping, DiskFullForAMomentEndsNothingAndLosesNoRow) {
    const test::SmallDisk disk(256u << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    const std::string name = (disk.path() / "run").string();
    // Six members have rows of kilobytes: those of three epochs do not fit the last page of the file.
    const std::vector<std::string> settings{"train.epochs=5", "checkpoint.keep=1", "members=6"};
    const auto result = run_hooked(name, settings, [&](std::uint64_t step) {
        if (step == 8) disk.fill();
        if (step == 29) disk.release();
    });
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_TRUE(logged("the rows are kept") && logged("being written again")) << log_.text();
    EXPECT_TRUE(logged("step 14 was not saved") && logged("training goes on")) << log_.text();
    EXPECT_EQ(rows(name, "epoch").size(), 5u);
    double steps = 0;
    for (const record::MetricsRow& row : rows(name, "interval")) steps += *row.number("steps");
    EXPECT_EQ(steps, 35);
    ASSERT_TRUE(run("whole", settings).ok());
    for (const char* file : {"member-003/model.safetensors", "member-003/optimizer.safetensors"})
        EXPECT_EQ(last(name, file), last("whole", file));
    EXPECT_TRUE(evaluate_run(name, data::Part::test).ok());
}

TEST_F(Keeping, DiskForThreeCheckpointsHoldsALongerRun) {
    const test::SmallDisk disk(24u << 20);  // a checkpoint has 6.7 MB
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    const std::string name = (disk.path() / "run").string();
    // Nothing is learned, so that the first weights stay the best.
    const auto result = run(name, {"model.name=shallow", "train.epochs=6", "optim.lr=0", "checkpoint.keep=3"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_FALSE(logged("was not saved")) << log_.text();
    EXPECT_TRUE(logged("the disk is full, so the oldest checkpoint went: step-00000014")) << log_.text();
    EXPECT_TRUE(has(name + "/checkpoints/best/model.safetensors"));
    EXPECT_EQ(fs::read_symlink(name + "/checkpoints/last"), "step-00000042");
    EXPECT_EQ(result->members.at(0).best_epoch, 1u);
    EXPECT_TRUE(evaluate_run(name, data::Part::test).ok());
}

TEST_F(Keeping, ImprovementThatCouldNotBeSavedIsNoneForPatience) {
    const test::SmallDisk disk(48u << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    const std::string name = (disk.path() / "run").string();
    nlohmann::json state;
    const std::vector<std::string> settings{"train.epochs=3", "train.patience=2", "checkpoint.keep=1",
                                            "checkpoint.best_metric=validation_loss"};
    const auto result = run_hooked(name, settings, [&](std::uint64_t step) {
        if (step == 8) disk.fill();
        if (step == 15) disk.release();
        if (step == 16) saves_ += 1;
        if (step == 18) state = base::json_or_throw(last(name, "state.json"));
    });
    ASSERT_TRUE(result.ok()) << result.error().text();
    ASSERT_TRUE(logged("step 14 was not saved")) << log_.text();
    ASSERT_EQ(rows(name, "epoch").size(), 3u);
    EXPECT_LT(rows(name, "epoch")[1].number("validation_loss"), rows(name, "epoch")[0].number("validation_loss"));
    ASSERT_EQ(state.at("step"), 17);
    EXPECT_EQ(state.at("best").at("epoch"), 1);
    EXPECT_EQ(state.at("staleness").at("best").at(0), state.at("best").at("value"));
    EXPECT_EQ(state.at("staleness").at("evaluations"), 0);
}

TEST_F(Keeping, DiskFullAtTheEndFailsTheRunAndResumeFinishesIt) {
    const test::SmallDisk disk(48u << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    const std::string name = (disk.path() / "run").string();
    const auto result = run_hooked(name, {}, [&](std::uint64_t step) {
        if (step == 9) disk.fill();
    });
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().exit_status, 1);
    const auto manifest = record::read_manifest(name);
    ASSERT_TRUE(manifest.ok()) << manifest.error().text();
    EXPECT_EQ(manifest->status, record::RunStatus::kFailed);
    EXPECT_EQ(manifest->exit_status, 1);
    disk.release();
    ASSERT_TRUE(run(name, {}, true).ok());
    ASSERT_TRUE(run("whole", {}).ok());
    expect_equal(name, "whole");
}

TEST_F(Keeping, StopDuringTheLastEvaluationIsAStopAndResumeTests) {
    struct StopAtTheEnd final : Listener {
        std::atomic<int> stop{0};
        base::Status on_epoch(EpochReport& report) override {
            if (report.epoch == report.epochs) stop = SIGTERM;
            return base::ok();
        }
    } observer;
    TrainRequest request;
    request.out = folder_ / "a";
    request.stop = &observer.stop;
    const auto stopped = train(recipe({}), request, {&observer});
    ASSERT_TRUE(stopped.ok()) << stopped.error().text();
    EXPECT_EQ(stopped->signal, SIGTERM);
    EXPECT_EQ(record::read_manifest(folder_ / "a")->status, record::RunStatus::kInterrupted);
    EXPECT_TRUE(rows("a", "test").empty());
    const auto resumed = run("a", {}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(resumed->members.size(), 1u);
    EXPECT_EQ(rows("a", "test").size(), 1u);
}

TEST_F(Keeping, StoppedRunMayEndWhereItWasStopped) {
    ASSERT_TRUE(run_hooked("a", {}, [&](std::uint64_t step) {
                    if (step == 2) stop_ = SIGINT;
                }).ok());
    const auto resumed = run("a", {"train.steps=3"}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(resumed->step, 3u);
    EXPECT_EQ(rows("a", "epoch").size(), 1u);
}

TEST_F(Keeping, RunsThatBeginTogetherGetFoldersOfTheirOwn) {
    std::vector<std::thread> threads;
    std::vector<std::string> runs(3);
    for (std::string& taken : runs)
        threads.emplace_back([&, settings = std::vector<std::string>{"train.steps=1"}] {
            TrainRequest request;
            request.out = folder_ / "runs/tiny";
            request.number_if_taken = true;
            const auto result = train(recipe(settings), request, {});
            taken = result.ok() ? result->run : result.error().text();
        });
    for (std::thread& thread : threads) thread.join();
    std::ranges::sort(runs);
    const std::string base = (folder_ / "runs/tiny").string();
    EXPECT_EQ(runs, (std::vector<std::string>{base, base + "-2", base + "-3"}));
    EXPECT_EQ(newest_run_directory(base)->string(), base + "-3");
}

}  // namespace
}  // namespace millrace::train
