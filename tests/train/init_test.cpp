// train --init: a new run from the weights of another run or of a file.

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "record/run_directory.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;

/// Seven steps per epoch.
class InitialRun : public TinyRun {
protected:
    base::Result<RunResult> start(const std::string& name, const fs::path& init, std::vector<std::string> more,
                                  const std::vector<Listener*>& listeners = {}, bool resume = false) {
        std::vector<std::string> settings{"model.name=cnn", "model.preset=debug", "train.epochs=1", "telemetry.interval=0s"};
        settings.insert(settings.end(), more.begin(), more.end());
        TrainRequest request;
        request.out = folder_ / name;
        request.init = init;
        request.resume = resume;
        return train(recipe(std::move(settings)), request, listeners);
    }
    void expect_refused(const base::Result<RunResult>& result, const std::vector<std::string>& words) const {
        ASSERT_FALSE(result.ok());
        for (const std::string& word : words)
            EXPECT_NE(result.error().text().find(word), std::string::npos) << word << "\n" << result.error().text();
    }
};

TEST_F(InitialRun, BestWeightsOfARunStartAnother) {
    ASSERT_TRUE(start("a", {}, {"train.epochs=2"}).ok());
    // Without a learning rate the weights stay what they were.
    const auto result = start("b", folder_ / "a", {"optim.lr=0"});
    ASSERT_TRUE(result.ok()) << result.error().text();
    EXPECT_EQ(last("b"), bytes("a/checkpoints/best/model.safetensors"));
    EXPECT_EQ(result->step, 7u);
    EXPECT_EQ(base::json_or_throw(last("b", "state.json")).at("members").at(0).at("applied"), 7);
    const auto manifest = record::read_manifest(folder_ / "b");
    ASSERT_TRUE(manifest->init);
    EXPECT_EQ(manifest->init->path, fs::canonical(folder_ / "a/checkpoints/best").string());
    EXPECT_FALSE(record::read_manifest(folder_ / "a")->init);
}

TEST_F(InitialRun, FileAndCheckpointFolderAreTheSameStart) {
    ASSERT_TRUE(start("a", {}, {}).ok());
    ASSERT_TRUE(start("run", folder_ / "a", {}).ok());
    ASSERT_TRUE(start("file", folder_ / "a/checkpoints/best/model.safetensors", {}).ok());
    ASSERT_TRUE(start("folder", folder_ / "a/checkpoints/step-00000007", {}).ok());
    EXPECT_EQ(last("file"), last("run"));
    EXPECT_EQ(last("folder"), last("run"));
    EXPECT_NE(last("run"), last("a"));
}

TEST_F(InitialRun, NewestCheckpointStandsInForTheBest) {
    ASSERT_TRUE(start("a", {}, {"train.epochs=2"}).ok());
    fs::remove(folder_ / "a/checkpoints/best");
    ASSERT_TRUE(start("b", folder_ / "a", {"optim.lr=0"}).ok());
    EXPECT_EQ(last("b"), last("a"));
}

TEST_F(InitialRun, OneSetStartsAllMembersAndSeveralStartMemberByMember) {
    ASSERT_TRUE(start("one", {}, {}).ok());
    ASSERT_TRUE(start("two", folder_ / "one", {"members=2", "optim.lr=0"}).ok());
    for (const char* member : {"member-000/model.safetensors", "member-001/model.safetensors"})
        EXPECT_EQ(last("two", member), bytes("one/checkpoints/best/model.safetensors"));
    ASSERT_TRUE(start("drawn", {}, {"members=2"}).ok());
    ASSERT_TRUE(start("again", folder_ / "drawn", {"members=2", "optim.lr=0"}).ok());
    for (const std::string member : {"member-000/model.safetensors", "member-001/model.safetensors"})
        EXPECT_EQ(last("again", member.c_str()), bytes("drawn/checkpoints/best/" + member));
    EXPECT_NE(last("again", "member-000/model.safetensors"), last("again", "member-001/model.safetensors"));
    for (const char* members : {"members=1", "members=3"})
        expect_refused(start("c", folder_ / "drawn", {members}), {"the weights of 2 members"});
}

TEST_F(InitialRun, OtherTensorsAreRefusedWithAllTheirNames) {
    ASSERT_TRUE(start("a", {}, {}).ok());
    expect_refused(start("b", folder_ / "a", {"model.hidden=16"}),
                   {"of another shape", "hidden.weight ([32, ", "not [16, ", "out.weight"});
    expect_refused(start("b", folder_ / "a", {"model.channels=8,16,16"}), {"missing convs.2.", "of another shape hidden.weight"});
    expect_refused(start("b", folder_ / "a", {"model.channels=8"}), {"additional convs.1.", "of another shape hidden.weight"});
    expect_refused(start("b", folder_ / "a", {"model.name=collective", "model.preset=debug"}),
                   {"missing ", " more; additional "});
    expect_refused(start("b", folder_ / "nowhere", {}), {"no such run or file"});
    expect_refused(start("b", folder_ / "data", {}), {"holds no run and no checkpoint"});
    EXPECT_FALSE(fs::exists(folder_ / "b")) << "refused before anything is written";
}

TEST_F(InitialRun, ResumeHasItsOwnWeights) {
    ASSERT_TRUE(start("a", {}, {}).ok());
    expect_refused(start("a", folder_ / "a", {}, {}, true), {"--init starts a new run and --resume continues one"});
}

/// Copies the run when nothing was launched yet, as a process that is killed there would leave it.
struct CopyAtStart final : Listener {
    fs::path from, to;
    void on_start(const StartReport&) override {
        fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
};

TEST_F(InitialRun, KilledBeforeItsFirstCheckpointBeginsFromTheSameWeights) {
    ASSERT_TRUE(start("a", {}, {}).ok());
    CopyAtStart copy;
    copy.from = folder_ / "b";
    copy.to = folder_ / "killed";
    ASSERT_TRUE(start("b", folder_ / "a", {}, {&copy}).ok());
    fs::copy(folder_ / "killed", folder_ / "again", fs::copy_options::recursive);
    const auto resumed = start("killed", {}, {}, {}, true);
    ASSERT_TRUE(resumed.ok()) << resumed.error().text();
    EXPECT_EQ(last("killed"), last("b"));

    fs::remove_all(folder_ / "a");
    ASSERT_TRUE(start("a", {}, {"seed=7"}).ok());
    expect_refused(start("again", {}, {}, {}, true), {"holds other weights"});
}

}  // namespace
}  // namespace millrace::train
