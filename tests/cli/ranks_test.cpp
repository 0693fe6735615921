// Training over several processes under the real mpirun: the bits of one process, and what happens when a rank is lost.

#include <signal.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "cli/folder.h"
#include "io/checkpoint.h"
#include "places.h"
#include "record/metrics.h"
#include "record/run_directory.h"
#include "small_disk.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

class OverRanks : public InFolder {
protected:
    void SetUp() override {
        if (!fs::exists(kMpirun)) GTEST_SKIP() << "no mpirun: tools/setup --mpi";
        if (!fs::exists(testing::program_folder() / "libmillrace-mpi.so"))
            GTEST_SKIP() << "built without Open MPI: tools/setup --mpi";
        InFolder::SetUp();
    }
    void TearDown() override {
        if (!folder_.empty()) InFolder::TearDown();
    }
    static ChildOptions mpirun() {
        ChildOptions options;
        options.environment = {"OMPI_MCA_rmaps_base_oversubscribe=1"};
        options.program = kMpirun;
        return options;
    }
    static std::vector<std::string> words_over(int ranks, const std::vector<std::string>& words) {
        std::vector<std::string> all{"--allow-run-as-root", "-n", std::to_string(ranks),
                                     (testing::program_folder() / "millrace").string()};
        all.insert(all.end(), words.begin(), words.end());
        return all;
    }
    /// Trains on `ranks` processes, or on one by itself.
    Said over(int ranks, const std::vector<std::string>& words) const {
        return ranks == 1 ? call(words) : call(words_over(ranks, words), mpirun());
    }

    static constexpr const char* kMpirun = "/usr/bin/mpirun";
};

std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::vector<std::string> set(const std::vector<std::string>& settings) {
    std::vector<std::string> words;
    for (const std::string& setting : settings) words = words + std::vector<std::string>{"--set", setting};
    return words;
}

/// Names of tensors of the newest checkpoints that are not the same to the bit.
std::vector<std::string> tensors_apart(const fs::path& left, const fs::path& right) {
    const auto a = io::load_checkpoint(left / "checkpoints/last"), b = io::load_checkpoint(right / "checkpoints/last");
    if (!a.ok() || !b.ok()) return {a.ok() ? b.error().text() : a.error().text()};
    if (a->step != b->step || a->members.size() != b->members.size()) return {"step or members"};
    std::vector<std::string> apart;
    const auto compare = [&](const io::SafetensorsFile& one, const io::SafetensorsFile& other) {
        for (const io::TensorView& tensor : one.tensors()) {
            const io::TensorView* found = other.find(tensor.name);
            const auto mine = one.read(tensor);
            if (found == nullptr || !mine.ok() || *other.read(*found) != *mine) apart.push_back(tensor.name);
        }
    };
    for (std::size_t k = 0; k < a->members.size(); ++k) {
        compare(a->members[k].model, b->members[k].model);
        compare(*a->members[k].optimizer, *b->members[k].optimizer);
    }
    return apart;
}

/// What the rows of epochs and of the test say of the model, not of time and machine.
std::vector<std::string> scores_of(const fs::path& run) {
    std::vector<std::string> rows;
    const auto read = record::read_metrics(run / "metrics.jsonl");
    if (!read.ok()) return {read.error().text()};
    for (const record::MetricsRow& row : read->rows) {
        if (*row.find("kind") == record::MetricValue(std::string("interval"))) continue;
        std::string text;
        for (const auto& [name, value] : row.values) {
            const bool is_score = name.find("loss") != std::string::npos || name.find("accuracy") != std::string::npos ||
                                  name == "step" || name == "dropped";
            const auto* number = std::get_if<double>(&value);
            if (is_score && number != nullptr) text += name + " " + std::to_string(std::bit_cast<std::uint64_t>(*number)) + "\n";
        }
        rows.push_back(text);
    }
    return rows;
}

struct Family {
    const char* name;
    const char* recipe;
    int ranks;
    std::vector<std::string> make;  ///< words behind `data make`, without --out
    std::vector<std::string> settings;
    const char* micro;  ///< of one process
};

const std::vector<std::string> kImages{"garments", "--train", "310", "--test", "40"}, kText{"text"},
    kPairs{"pairs", "--count", "90", "--dimensions", "24"}, kSounds{"hydrophone", "--files", "20"};

class FamilyOverRanks : public OverRanks, public ::testing::WithParamInterface<Family> {};

// Ragged ends leave some ranks fewer rows in an epoch's last step, or none; validation has more batches than ranks and a tail.
TEST_P(FamilyOverRanks, GivesTheBitsOfOneProcess) {
    const Family& family = GetParam();
    ASSERT_EQ(
        call(std::vector<std::string>{"data", "make"} + family.make + std::vector<std::string>{"--out", path("set")}).status, 0);
    const std::vector<std::string> words =
        std::vector<std::string>{"train", (testing::source_root() / "recipes" / family.recipe).string(), "--quiet"} +
        set({"device=cpu", "threads=1", "data.path=" + path("set"), "optim.clip_norm=1", "telemetry.interval=0s"}) +
        set(family.settings);
    const Said one =
        call(words + set({std::string("train.micro_batch=") + family.micro}) + std::vector<std::string>{"--out", path("one")});
    ASSERT_EQ(one.status, 0) << one.err;
    const Said many = over(family.ranks, words + std::vector<std::string>{"--out", path("many")});
    ASSERT_EQ(many.status, 0) << many.err;
    EXPECT_EQ(tensors_apart(folder_ / "one", folder_ / "many"), std::vector<std::string>{});
    const auto scores = scores_of(folder_ / "one");
    EXPECT_FALSE(scores.empty());
    EXPECT_EQ(scores_of(folder_ / "many"), scores);
}

INSTANTIATE_TEST_SUITE_P(
    All, FamilyOverRanks,
    ::testing::Values(
        Family{"collective2", "collective-debug.toml", 2, kImages, {"train.epochs=3", "train.batch=32", "eval.batch=9"}, "16"},
        Family{"collective3", "collective-debug.toml", 3, kImages, {"train.epochs=3", "train.batch=33", "eval.batch=9"}, "11"},
        Family{"collective4", "collective-debug.toml", 4, kImages, {"train.epochs=3", "train.batch=32", "eval.batch=7"}, "8"},
        Family{"collective_members",
               "collective-debug.toml",
               4,
               kImages,
               {"train.epochs=2", "train.batch=32", "members=6", "optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3", "eval.batch=9"},
               "16"},
        Family{"cnn",
               "cnn-base.toml",
               3,
               kImages,
               {"model.preset=debug", "train.epochs=2", "train.batch=24", "data.augment=true"},
               "8"},
        Family{
            "cnn_streamed",
            "cnn-base.toml",
            2,
            kImages,
            {"model.preset=debug", "train.epochs=2", "train.batch=24", "data.mode=stream", "data.window=128KiB", "eval.batch=9"},
            "12"},
        Family{"deep_resnet", "deep_resnet-debug.toml", 4, kImages, {"train.epochs=2", "train.batch=32", "eval.batch=7"}, "8"},
        Family{"transformer",
               "transformer-base.toml",
               3,
               kText,
               {"model.preset=debug", "train.batch=12", "train.epochs=1", "train.steps=12", "eval.batch=9", "model.dropout=0.1"},
               "4"},
        Family{"k1",
               "k1-base.toml",
               2,
               kText,
               {"model.preset=debug", "train.batch=8", "train.epochs=1", "train.steps=10", "eval.batch=9"},
               "4"},
        Family{"leak_cnn", "leak_cnn-base.toml", 3, kSounds, {"model.preset=debug", "train.epochs=2", "train.batch=24"}, "8"},
        Family{"leak_cnn_streamed",
               "leak_cnn-base.toml",
               2,
               kSounds,
               {"model.preset=debug", "train.epochs=2", "train.batch=24", "data.mode=stream", "data.window=1MiB", "eval.batch=9"},
               "12"},
        Family{"energy_flow",
               "energy_flow-debug.toml",
               2,
               kPairs,
               {"train.epochs=1", "train.batch=8", "train.steps=3", "eval.batch=4"},
               "4"}),
    [](const auto& given) { return given.param.name; });

TEST_F(OverRanks, MembersGiveTheBitsOfOneProcessOnAnyNumberOfRanks) {
    const auto words = [&](const std::string& run) {
        return train_words(run, set({"members=4", "threads=1", "train.epochs=2", "optim.lr=1e-3,2e-3,3e-3,4e-3"}));
    };
    ASSERT_EQ(call(words("one")).status, 0);
    for (const int ranks : {2, 4}) {
        const std::string name = "over" + std::to_string(ranks);
        const Said said = over(ranks, words(name));
        ASSERT_EQ(said.status, 0) << said.err;
        EXPECT_NE(said.out.find("without messages"), std::string::npos) << said.out;
        EXPECT_EQ(tensors_apart(folder_ / "one", folder_ / name), std::vector<std::string>{});
        EXPECT_EQ(scores_of(folder_ / name), scores_of(folder_ / "one"));
    }
}

/// What "N messages of ranks for M steps" says.
std::pair<int, int> messages_and_steps(const std::string& log) {
    const std::size_t end = log.find(" messages of ranks for ");
    std::pair<int, int> found{-1, -1};
    if (end == std::string::npos) return found;
    const std::size_t begin = log.find_last_not_of("0123456789", end - 1) + 1;
    std::sscanf(log.c_str() + begin, "%d messages of ranks for %d", &found.first, &found.second);
    return found;
}

TEST_F(OverRanks, MembersSendNothingInAStepAndRowsDo) {
    const auto log_of = [&](const std::string& run, const std::vector<std::string>& settings) {
        return over(2, train_words(run, set({"train.epochs=2", "train.batch=2", "threads=1"}) + set(settings) +
                                            std::vector<std::string>{"--log-level", "performance"}))
            .err;
    };
    const auto [few, steps] = messages_and_steps(log_of("members", {"members=2"}));
    EXPECT_GT(steps, 100);
    EXPECT_GT(few, 0);
    EXPECT_LT(few, steps);
    const auto [many, same] = messages_and_steps(log_of("rows", {"train.batch=4"}));
    EXPECT_GE(many, 2 * same) << "gradients and sums";
}

TEST_F(OverRanks, GoesOnWithAnotherNumberOfRanks) {
    const auto words = [&](const char* epochs, const std::string& run) {
        return train_words(run, set({std::string("train.epochs=") + epochs, "threads=1"}));
    };
    ASSERT_EQ(over(2, words("1", "run")).status, 0);
    ASSERT_EQ(over(1, words("2", "run") + std::vector<std::string>{"--resume"}).status, 0);
    const Said more = over(4, words("3", "run") + std::vector<std::string>{"--resume"});
    ASSERT_EQ(more.status, 0) << more.err;
    EXPECT_NE(more.err.find("bits differ from here on"), std::string::npos) << more.err;
    ASSERT_EQ(over(2, words("2", "two")).status, 0);
    ASSERT_EQ(over(1, words("2", "one") + set({"train.micro_batch=32"})).status, 0);
    EXPECT_EQ(tensors_apart(folder_ / "one", folder_ / "two"), std::vector<std::string>{});
}

TEST_F(OverRanks, RowsThatDoNotDivideAreRefusedOnce) {
    const Said said = over(3, train_words("run"));
    EXPECT_NE(said.status, 0);
    EXPECT_NE(said.err.find("train.batch = 64 is that of all ranks, and 3 share it; 66 would be right"), std::string::npos)
        << said.err;
    EXPECT_EQ(said.err.find("train.batch = 64"), said.err.rfind("train.batch = 64")) << said.err;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(OverRanks, RecipesThatDifferAreRefusedWithHostsAndValues) {
    const std::string program = (testing::program_folder() / "millrace").string();
    std::vector<std::string> words{"--allow-run-as-root", "-n", "1", program};
    words = words + train_words("run", set({"optim.lr=1e-3"})) + std::vector<std::string>{":", "-n", "1", program} +
            train_words("run", set({"optim.lr=2e-3"}));
    const Said said = call(words, mpirun());
    EXPECT_NE(said.status, 0);
    for (const char* part : {"the recipe of rank 1 on ", "lr = 0.002", "lr = 0.001", "all ranks must have the same"})
        EXPECT_NE(said.err.find(part), std::string::npos) << part << " is not in: " << said.err;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(OverRanks, DataThatDifferAreRefused) {
    const std::string program = (testing::program_folder() / "millrace").string();
    for (const char* place : {"here", "there"}) fs::create_directory(folder_ / place);
    ASSERT_TRUE(data::make_garments(folder_ / "here/data", {300, 60, 7}).ok());
    ASSERT_TRUE(data::make_garments(folder_ / "there/data", {310, 60, 7}).ok());
    std::vector<std::string> words{"--allow-run-as-root"};
    for (const char* place : {"here", "there"})
        words = words + std::vector<std::string>{"-n", "1", "-wdir", path(place), program} +
                train_words("run", set({"data.path=data"})) + std::vector<std::string>{":"};
    words.pop_back();
    const Said said = call(words, mpirun());
    EXPECT_NE(said.status, 0);
    EXPECT_NE(said.err.find("the data of rank 1 on "), std::string::npos) << said.err;
}

/// A run that would take long, with what it leaves compared to one that was never disturbed.
class LostRanks : public OverRanks {
protected:
    std::vector<std::string> words(const std::string& run) const {
        return train_words(
            run, set({"train.epochs=16", "train.batch=48", "checkpoint.every_epochs=2", "threads=1", "telemetry.interval=0s"}));
    }
    /// Processes of the run by rank, once the run has saved something.
    std::map<int, pid_t> ranks_of(const Child& mpirun, int count, const std::string& run) const {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!fs::exists(folder_ / run / "checkpoints/last/state.json") && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::map<int, pid_t> found;
        const std::string process = std::to_string(mpirun.pid());
        std::ifstream children("/proc/" + process + "/task/" + process + "/children");
        for (pid_t child = 0; children >> child;) found.emplace(static_cast<int>(found.size()), child);
        EXPECT_EQ(found.size(), static_cast<std::size_t>(count));
        return found;
    }
    static void expect_gone(const std::map<int, pid_t>& processes) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        for (const auto& [rank, process] : processes) {
            while (kill(process, 0) == 0 && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            EXPECT_NE(kill(process, 0), 0) << "rank " << rank << " still runs";
        }
    }
    void expect_whole_after_resuming(const std::string& run) const {
        const Said resumed = over(3, words(run) + std::vector<std::string>{"--resume", "--quiet"});
        ASSERT_EQ(resumed.status, 0) << resumed.err;
        if (!fs::exists(folder_ / "whole")) {
            ASSERT_EQ(over(1, words("whole") + set({"train.micro_batch=16"}) + std::vector<std::string>{"--quiet"}).status, 0);
        }
        EXPECT_EQ(tensors_apart(folder_ / "whole", folder_ / run), std::vector<std::string>{});
        EXPECT_EQ(scores_of(folder_ / run), scores_of(folder_ / "whole"));
    }
};

TEST_F(LostRanks, KilledOnesEndAllAndTheRunGoesOnToEqualBits) {
    for (const int victim : {0, 1, 2}) {
        const std::string run = "run" + std::to_string(victim);
        Child child(folder_.string(), words_over(3, words(run)), mpirun());
        const auto processes = ranks_of(child, 3, run);
        ASSERT_EQ(processes.size(), 3u);
        kill(processes.at(victim), SIGKILL);
        EXPECT_NE(child.wait().status, 0);
        expect_gone(processes);
        expect_whole_after_resuming(run);
    }
}

TEST_F(LostRanks, ADiskThatFillsUpFailsTheRunAndNothingIsLost) {
    const test::SmallDisk disk(48u << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    const std::string run = (disk.path() / "run").string();
    Child child(folder_.string(), words_over(3, words(run)), mpirun());
    const auto processes = ranks_of(child, 3, run);
    ASSERT_EQ(processes.size(), 3u);
    disk.fill();
    const Said said = child.wait();
    EXPECT_EQ(said.status, 1) << said.err;
    EXPECT_NE(said.err.find("No space left on device"), std::string::npos) << said.err;
    expect_gone(processes);
    disk.release();
    expect_whole_after_resuming(run);
}

TEST_F(LostRanks, TerminatedOneSavesTheSameStepOnAll) {
    Child child(folder_.string(), words_over(3, words("run")), mpirun());
    const auto processes = ranks_of(child, 3, "run");
    ASSERT_EQ(processes.size(), 3u);
    kill(processes.at(1), SIGTERM);
    const Said said = child.wait();
    EXPECT_EQ(said.status, 143) << said.err;
    const auto manifest = record::read_manifest(folder_ / "run");
    ASSERT_TRUE(manifest.ok());
    EXPECT_EQ(manifest->status, record::RunStatus::kInterrupted);
    expect_gone(processes);
    expect_whole_after_resuming("run");
}

TEST_F(LostRanks, StoppedOneIsNamedByTheOthers) {
    Child child(folder_.string(), words_over(3, words("run") + set({"parallel.timeout=2s"})), mpirun());
    const auto processes = ranks_of(child, 3, "run");
    ASSERT_EQ(processes.size(), 3u);
    kill(processes.at(2), SIGSTOP);
    const Said said = child.wait();
    EXPECT_EQ(said.status, 75) << said.err;
    EXPECT_NE(said.err.find("waited 2 s for the other ranks in step "), std::string::npos) << said.err;
    expect_gone(processes);
    expect_whole_after_resuming("run");
}

}  // namespace
}  // namespace millrace::cli
