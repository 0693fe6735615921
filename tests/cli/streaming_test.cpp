// Streaming as a user meets it: a packed copy, a run that is killed and goes on, files that change under it.

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "cli/folder.h"
#include "data/folder.h"
#include "io/checkpoint.h"
#include "io/hdf5.h"

namespace millrace::cli {
namespace {

class Streaming : public InFolder {
protected:
    void SetUp() override {
        InFolder::SetUp();
        if (!io::have_hdf5()) GTEST_SKIP() << "this build has no HDF5";
        ASSERT_EQ(call({"data", "make", "hydrophone", "--out", path("set"), "--files", "60"}).status, 0);
        const Said packed = call({"data", "pack", path("set"), "--out", path("packed"), "--seed", "5"});
        ASSERT_EQ(packed.status, 0) << packed.err;
        EXPECT_NE(packed.out.find("42 training recordings in random order, seed 5"), std::string::npos) << packed.out;
        write(
            "leak.toml",
            "device = \"cpu\"\nthreads = 1\n[model]\nname = \"leak_cnn\"\npreset = \"debug\"\n[train]\nepochs = 12\nbatch = 64\n"
            "[optim]\nlr = 3e-3\n[checkpoint]\nevery_epochs = 100\n[telemetry]\ninterval = \"0s\"\n"
            "[data]\nmode = \"stream\"\nwindow = \"256KiB\"\npath = \"" +
                path("packed") + "\"\n");
    }
    [[nodiscard]] std::vector<std::string> words(const std::string& run, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> all{"train", path("leak.toml"), "--out", path(run)};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    std::string bytes(const std::string& below) const {
        std::ifstream in(folder_ / below, std::ios::binary);
        EXPECT_TRUE(in.good()) << below;
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

TEST_F(Streaming, AKilledRunGoesOnToTheBit) {
    const Said whole = call(words("whole"));
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_NE((whole.out + whole.err).find("loading streamed (data.mode = \"stream\")"), std::string::npos)
        << whole.out << whole.err;
    constexpr std::uint64_t kSteps = 53;  // of an epoch: 3,360 windows
    {
        Child child(folder_.string(), words("killed", {"--set", "checkpoint.every_time=20ms"}));
        const auto within_an_epoch = [&] {
            const auto loaded = io::load_checkpoint(folder_ / "killed/checkpoints/last", io::LoadParts::kModelOnly);
            return loaded.ok() && loaded->step > kSteps && loaded->step % kSteps != 0;
        };
        while (child.running() && !within_an_epoch()) std::this_thread::yield();
        child.send(SIGKILL);
        ASSERT_EQ(child.wait().status, 1000 + SIGKILL);
    }
    const Said resumed = call(words("killed", {"--resume"}));
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_NE((resumed.out + resumed.err).find("continued after step"), std::string::npos);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        EXPECT_EQ(bytes(std::string("whole/checkpoints/last/") + file), bytes(std::string("killed/checkpoints/last/") + file));
    const Said scored = call({"eval", path("killed")});
    EXPECT_EQ(scored.status, 0) << scored.err;
}

TEST_F(Streaming, AFileThatIsCutEndsTheRunWithItsName) {
    Child child(folder_.string(), words("cut", {"--set", "train.epochs=1000", "--set", "data.window=512KiB", "--set",
                                                "checkpoint.every_time=20ms"}));
    while (child.running() && !io::load_checkpoint(folder_ / "cut/checkpoints/last", io::LoadParts::kModelOnly).ok())
        std::this_thread::yield();
    std::filesystem::resize_file(folder_ / "packed" / data::kRecordingFiles[0], 5000);
    const Said said = child.wait();
    EXPECT_TRUE(said.status == 1 || said.status == 2) << said.status;
    EXPECT_NE(said.err.find("cannot read the train data of packed"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("TRAINING_DATASET.H5"), std::string::npos) << said.err;
}

TEST_F(Streaming, TuningTimesTheReadersAndWritesARecipe) {
    const Said tuned = call({"tune", path("leak.toml"), "--seconds", "4", "--json", "--quiet", "--out", path("tuned.toml")});
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    const auto report = base::json_or_throw(tuned.out);
    EXPECT_TRUE(report.at("streamed").get<bool>());
    EXPECT_GT(report.at("reader_seconds_per_sample").get<double>(), 0);
    std::map<std::string, int> stages;
    for (const auto& row : report.at("rows")) stages[row.at("stage").get<std::string>()] += 1;
    for (const char* stage : {"settings", "rows", "loader", "batch"}) EXPECT_GT(stages[stage], 0) << stage;
    EXPECT_EQ(report.at("batch"), 64);
    EXPECT_TRUE(tuned.err.empty()) << tuned.err;
    const Said trained = call({"train", path("tuned.toml"), "--out", path("run"), "--set", "train.steps=3"});
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_EQ(call({"tune", path("leak.toml"), "--seconds", "1", "--out", path("tuned.toml")}).status, 0) << "ours is replaced";
}

TEST_F(Streaming, PackRefusesWhatItCannotCopy) {
    expect_refusal(call({"data", "pack"}), {"FOLDER", "Try: millrace data pack --help"});
    expect_refusal(call({"data", "pack", path("data"), "--out", path("x")}), {"TRAINING_DATASET.H5"});
    expect_refusal(call({"data", "pack", path("set"), "--out", path("packed")}), {"another --out"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

}  // namespace
}  // namespace millrace::cli
