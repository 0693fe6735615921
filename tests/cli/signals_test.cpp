#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "cli/folder.h"
#include "io/checkpoint.h"
#include "record/run_directory.h"

namespace millrace::cli {
namespace {

class Signals : public InFolder {
protected:
    /// Waits for another process to do something; gives up after half a minute.
    template <class Condition>
    static bool eventually(const Condition& condition) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        while (!condition()) {
            if (std::chrono::steady_clock::now() > until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
        return true;
    }
    bool saved(const std::string& name) const { return std::filesystem::exists(folder_ / name / "checkpoints/last/state.json"); }
    std::string weights(const std::string& name) const {
        std::ifstream in(folder_ / name / "checkpoints/last/model.safetensors", std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

TEST_F(Signals, InterruptAndTerminateSaveAndTheRunGoesOn) {
    for (const auto& [signal, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
        const std::string name = "run" + std::to_string(signal);
        Child child(folder_.string(), train_words(name, {"--set", "train.epochs=100000", "--set", "checkpoint.every_epochs=3"}));
        ASSERT_TRUE(eventually([&] { return saved(name); }));
        child.send(signal);
        const Said said = child.wait();
        EXPECT_EQ(said.status, status) << said.err;
        EXPECT_NE(said.out.find("--resume"), std::string::npos) << said.out;
        const auto manifest = record::read_manifest(folder_ / name);
        ASSERT_TRUE(manifest.ok());
        EXPECT_EQ(manifest->status, record::RunStatus::kInterrupted);
        EXPECT_EQ(manifest->exit_status, status);
        const auto checkpoint = io::load_checkpoint(folder_ / name / "checkpoints/last");
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().text();

        const std::string steps = "train.steps=" + std::to_string(checkpoint->step + 3);
        EXPECT_EQ(train(name, {"--resume", "--set", "train.epochs=100000", "--set", steps}).status, 0);
        EXPECT_EQ(train(name + "whole", {"--quiet", "--set", "train.epochs=100000", "--set", steps}).status, 0);
        EXPECT_EQ(weights(name), weights(name + "whole"));
    }
}

TEST_F(Signals, ARunThatLivesIsNotResumedWithoutItsLockFile) {
    Child child(folder_.string(), train_words("run", {"--set", "train.epochs=100000"}));
    ASSERT_TRUE(eventually([&] { return saved("run"); }));
    ASSERT_TRUE(std::filesystem::remove(folder_ / "run/.lock"));
    expect_refusal(train("run", {"--resume", "--set", "train.epochs=100000"}), {"another process is writing this run"});
    EXPECT_NE(call({"runs", folder_.string()}).out.find("running"), std::string::npos);
    child.send(SIGTERM);
    EXPECT_EQ(child.wait().status, 143);
}

TEST_F(Signals, NoThreadOfATrainingProcessCanReceiveThem) {
    Child child(folder_.string(), train_words("run", {"--set", "train.epochs=100000", "--set", "threads=3"}));
    ASSERT_TRUE(eventually([&] { return saved("run"); }));
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(child.pid()) + "/task")) {
        std::ifstream status(task.path() / "status");
        std::string name, line;
        std::getline(status, name);
        while (std::getline(status, line) && !line.starts_with("SigBlk:")) {
        }
        ASSERT_TRUE(line.starts_with("SigBlk:")) << name;
        const std::uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) EXPECT_TRUE(blocked >> (number - 1) & 1) << number << name;
        ++threads;
    }
    EXPECT_GE(threads, 5);  // training, two that help it, metrics, signals
    child.send(SIGTERM);
    EXPECT_EQ(child.wait().status, 143);
}

TEST_F(Signals, UserSignalSavesAndTheRunGoesOn) {
    Child child(folder_.string(),
                train_words("run", {"--set", "train.epochs=100000", "--set", "checkpoint.every_epochs=100000"}));
    ASSERT_TRUE(eventually([&] { return saved("run"); }));  // the best one
    ASSERT_TRUE(eventually([&] {
        child.send(SIGUSR1);  // again and again: one that meets a step that is saved as the best has nothing to do
        std::ifstream events(folder_ / "run/events.jsonl");
        const std::string text{std::istreambuf_iterator<char>(events), {}};
        return text.find("\"best\": false") != std::string::npos;
    }));
    EXPECT_TRUE(child.running());
    child.send(SIGINT);
    const Said said = child.wait();
    EXPECT_EQ(said.status, 130) << said.err;
    EXPECT_NE(said.err.find("as a signal asked for"), std::string::npos) << said.err;
}

TEST_F(Signals, ReaderOfThePipeMayLeave) {
    ChildOptions options;
    options.reader_left = true;
    const Said trained = train("run", {}, options);
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_EQ(record::read_manifest(folder_ / "run")->status, record::RunStatus::kFinished);
    EXPECT_EQ(train("json", {"--json"}, options).status, 0);
    const Said evaluated = call({"eval", path("run")}, options);
    EXPECT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_EQ(evaluated.err, "");
}

TEST_F(Signals, KilledWhileSavingLeavesAReadableRun) {
    // Five steps per epoch and a checkpoint after each: most of the time goes into saving.
    const std::vector<std::string> settings{"--set", "train.epochs=1000000", "--set", "train.steps=4000000"};
    std::uint64_t step = 0;
    for (int round = 0; round < 12; ++round) {
        std::vector<std::string> words = train_words("run", settings);
        if (round > 0) words.emplace_back("--resume");
        Child child(folder_.string(), words);
        const auto moved = [&] {
            const auto loaded = io::load_checkpoint(folder_ / "run/checkpoints/last", io::LoadParts::kModelOnly);
            return loaded.ok() && loaded->step > step;
        };
        ASSERT_TRUE(eventually([&] { return moved() || !child.running(); }));
        ASSERT_TRUE(child.running()) << child.wait().err;
        std::this_thread::sleep_for(std::chrono::microseconds{3700 * round});  // another phase of the next save each time
        child.send(SIGKILL);
        EXPECT_EQ(child.wait().status, 1000 + SIGKILL);
        const auto loaded = io::load_checkpoint(folder_ / "run/checkpoints/last");
        ASSERT_TRUE(loaded.ok()) << loaded.error().text();
        EXPECT_GT(loaded->step, step);
        step = loaded->step;
        ASSERT_TRUE(io::load_checkpoint(folder_ / "run/checkpoints/best").ok());
        ASSERT_TRUE(record::read_manifest(folder_ / "run").ok());
    }
    EXPECT_EQ(
        train("run", {"--resume", "--set", "train.epochs=1000000", "--set", "train.steps=" + std::to_string(step + 1)}).status,
        0);
    EXPECT_EQ(call({"eval", path("run")}).status, 0);
}

}  // namespace
}  // namespace millrace::cli
