#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "cli/folder.h"
#include "data/makers.h"
#include "io/file.h"
#include "io/hdf5.h"
#include "io/sound_file.h"
#include "ops/backend.h"

namespace millrace::cli {
namespace {

class LeakData : public InFolder {
protected:
    void SetUp() override {
        InFolder::SetUp();
        if (!io::can_read_sound() || !io::have_hdf5()) GTEST_SKIP() << "this build has no libsndfile or no HDF5";
    }
};

/// Ten seconds of the largest numbers that a WAV of floats may hold.
std::string huge_sound() {
    constexpr std::uint32_t kRate = 8000, kBytes = kRate * 10 * sizeof(float);
    std::string bytes;
    const auto add = [&]<class T>(T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
    bytes += "RIFF";
    add(36 + kBytes);
    bytes += "WAVEfmt ";
    add(std::uint32_t{16});
    add(std::uint16_t{3});  // floats
    add(std::uint16_t{1});
    add(kRate);
    add(std::uint32_t{kRate * sizeof(float)});
    add(std::uint16_t{sizeof(float)});
    add(std::uint16_t{32});
    bytes += "data";
    add(kBytes);
    for (std::uint32_t i = 0; i < kRate * 10; ++i) add(i / 20 % 2 == 0 ? 3.4e38F : -3.4e38F);
    return bytes;
}

TEST_F(LeakData, RecordingsBecomeASet) {
    const Said drawn = call({"data", "make", "hydrophone", "--out", path("wav"), "--wav", "--files", "40", "--gain", "-60"});
    ASSERT_EQ(drawn.status, 0) << drawn.err;
    EXPECT_NE(drawn.out.find("40 WAV files"), std::string::npos) << drawn.out;
    write("wav/LEAK/broken.wav", "no sound");
    const Said built = call({"data", "build-leak", path("wav"), "--out", path("set"), "--positive", "LEAK", "--threads", "3"});
    ASSERT_EQ(built.status, 0) << built.err;
    EXPECT_NE(built.out.find("labels NOLEAK, LEAK"), std::string::npos) << built.out;
    EXPECT_NE(built.err.find("skipped LEAK/broken.wav: is neither WAV nor FLAC"), std::string::npos) << built.err;
    const Said again = call({"data", "build-leak", path("wav"), "--out", path("set"), "--positive", "LEAK"});
    EXPECT_EQ(again.status, 0);
    EXPECT_NE(again.out.find("holds this set already"), std::string::npos) << again.out;
    expect_refusal(call({"data", "build-leak", path("wav"), "--out", path("set")}), {"dataset.json", "another --out"});
}

TEST_F(LeakData, ATrainedDetectorDecidesAboutFiles) {
    ASSERT_EQ(call({"data", "make", "hydrophone", "--out", path("set"), "--files", "60"}).status, 0);
    write("leak.toml",
          "[model]\nname = \"leak_cnn\"\npreset = \"debug\"\n[train]\nepochs = 3\nbatch = 64\n[optim]\nlr = 3e-3\n[data]\npath = "
          "\"" +
              path("set") + "\"\n");
    const Said trained = call({"train", path("leak.toml"), "--out", path("run"), "--device", "cpu"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Said scored = call({"eval", path("run"), "--split", "validation"});
    EXPECT_NE(scored.out.find("(always LEAK: F1 "), std::string::npos) << scored.out;
    EXPECT_NE(scored.out.find("MCC"), std::string::npos) << scored.out;

    ASSERT_EQ(call({"data", "make", "hydrophone", "--out", path("wav"), "--wav", "--files", "70", "--seed", "9"}).status, 0);
    write("wav/LEAK/a, \"b\".wav", "no sound");
    write("wav/huge.wav", huge_sound());
    const Said done = call({"classify", path("run"), "--in", path("wav"), "--out", path("table.csv")});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_NE(done.out.find("72 files"), std::string::npos) << done.out;
    EXPECT_NE(done.out.find("2 of them without an answer"), std::string::npos) << done.out;
    std::ifstream table(folder_ / "table.csv");
    std::string line;
    std::getline(table, line);
    EXPECT_EQ(line, "filepath,is_leak,leak_conf_mean,long_pos_frac,per_long_probs_json,notes");
    int right = 0, rows = 0, errors = 0;
    while (std::getline(table, line)) {
        ++rows;
        const bool leak = line.find("/LEAK/") != std::string::npos;
        if (line.find("wav,1,") != std::string::npos || line.find("wav,0,") != std::string::npos)
            right += leak == (line.find("wav,1,") != std::string::npos) ? 1 : 0;
        if (line.find("a, \"\"b\"\".wav\",,,,,error: is neither WAV nor FLAC") != std::string::npos) ++errors;
        if (line.find("huge.wav,,,,,error: the model's answer is not a number") != std::string::npos) ++errors;
        EXPECT_EQ(line.find("nan"), std::string::npos) << line;
    }
    EXPECT_EQ(rows, 72);
    ASSERT_EQ(call({"predict", path("run"), path("wav"), "--out", path("same.csv")}).status, 0);
    EXPECT_EQ(io::read_text(path("same.csv")).value(), io::read_text(path("table.csv")).value());
    ASSERT_EQ(call({"predict", path("run"), path("wav/LEAK"), path("wav/huge.wav"), "--out", path("some.jsonl")}).status, 0);
    const std::string objects = io::read_text(path("some.jsonl")).value();
    EXPECT_NE(objects.find("huge.wav\", \"is_leak\": null, \"leak_conf_mean\": null"), std::string::npos) << objects;
    EXPECT_NE(objects.find("\"is_leak\": 1, \"leak_conf_mean\": 0."), std::string::npos) << objects;
    EXPECT_EQ(errors, 2);
    EXPECT_GE(right, 50);              // always NOLEAK would have 40
    if (ops::cuda_available().ok()) {  // which makes the features itself, and may compute in bf16
        const auto decisions = [&](const std::string& device) {
            EXPECT_EQ(call({"classify", path("run"), "--in", path("wav"), "--out", path(device), "--device", device}).status, 0);
            std::ifstream in(folder_ / device);
            std::vector<char> found;
            for (std::string row; std::getline(in, row);)
                if (const std::size_t at = row.find("wav,"); at != std::string::npos) found.push_back(row[at + 4]);
            return found;
        };
        const std::vector<char> cpu = decisions("cpu"), cuda = decisions("cuda");
        ASSERT_EQ(cpu.size(), 70u);
        ASSERT_EQ(cuda.size(), cpu.size());
        EXPECT_LE(70 - std::inner_product(cpu.begin(), cpu.end(), cuda.begin(), 0, std::plus<>(), std::equal_to<>()), 5);
    }
    expect_refusal(call({"classify", path("run"), "--in", path("set"), "--out", path("x.csv")}), {"holds no WAV or FLAC file"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x.csv"));
    // Columns are named after the class that the run looks for.
    ASSERT_EQ(
        call({"train", path("leak.toml"), "--out", path("other"), "--device", "cpu", "--set", "data.positive=CRACK"}).status, 0);
    ASSERT_EQ(call({"classify", path("other"), "--in", path("wav/LEAK"), "--out", path("other.csv")}).status, 0);
    EXPECT_TRUE(io::read_text(path("other.csv")).value().starts_with("filepath,is_crack,crack_conf_mean,long_pos_frac,"));
}

TEST_F(LeakData, BadInput) {
    std::filesystem::create_directory(folder_ / "wav");
    expect_refusal(call({"data", "build-leak"}), {"WAV_DIR", "Try: millrace data build-leak --help"});
    expect_refusal(call({"data", "build-leak", path("wav")}), {"--out"});
    expect_refusal(call({"data", "build-leak", path("absent"), "--out", path("set")}), {"absent", "cannot list the folder"});
    expect_refusal(call({"data", "build-leak", path("wav"), "--out", path("set")}), {"wav: holds no recording", "LEAK/a.wav"});
    expect_refusal(call({"data", "build-leak", path("wav"), "--out", path("set"), "--split", "1,2,3"}),
                   {"--split 1,2,3", "0.7,0.2,0.1"});
    expect_refusal(call({"data", "make", "hydrophone", "--out", path("set"), "--files", "0"}), {"--files 0"});
    expect_refusal(call({"data", "make", "hydrophone", "--out", path("set"), "--gain", "3"}), {"--gain 3", "-200 to 0"});
    expect_refusal(call({"data", "make", "garments", "--out", path("set"), "--wav"}), {"--wav belongs to hydrophone"});
    EXPECT_FALSE(std::filesystem::exists(folder_ / "set"));
}

TEST_F(LeakData, AnInterruptedBuildLeavesNothing) {
    for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
        Child child(folder_.string(),
                    {"data", "make", "hydrophone", "--out", path("set"), "--files", "100000", "--threads", "1"});
        while (!std::filesystem::exists(folder_ / "set/.building") && child.running()) std::this_thread::yield();
        child.send(signal);
        const Said said = child.wait();
        if (signal == SIGKILL) {
            EXPECT_EQ(said.status, 1000 + signal);
            EXPECT_FALSE(std::filesystem::exists(folder_ / "set/dataset.json"));
        } else {
            EXPECT_EQ(said.status, 128 + signal) << said.err;
            EXPECT_FALSE(std::filesystem::exists(folder_ / "set"));
        }
    }
    const Said after = call({"data", "make", "hydrophone", "--out", path("set"), "--files", "30"});
    EXPECT_EQ(after.status, 0) << after.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "set/.building"));
}

TEST_F(LeakData, AFullDiskLeavesNothing) {
    ChildOptions limited;
    limited.file_size = 1 << 20;
    const Said said = call({"data", "make", "hydrophone", "--out", path("set"), "--files", "60", "--waveform"}, limited);
    EXPECT_EQ(said.status, 1) << said.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "set"));
}

}  // namespace
}  // namespace millrace::cli
