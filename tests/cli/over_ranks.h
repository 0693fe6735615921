#pragma once
// Training over several processes under the real mpirun, and what two runs left compared to the bit.

#include <signal.h>

#include <bit>
#include <chrono>
#include <map>
#include <thread>

#include "cli/folder.h"
#include "io/checkpoint.h"
#include "places.h"
#include "record/metrics.h"
#include "record/run_directory.h"

namespace millrace::cli {

namespace fs = std::filesystem;

/// Ranks on the CPU, or with `device_` "cuda" all on one GPU: NCCL allows that where each says that its host is another one.
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
    std::vector<std::string> words_over(int ranks, const std::vector<std::string>& words) const {
        std::vector<std::string> all{"--allow-run-as-root"};
        for (int rank = 0; rank < (device_ == "cuda" ? ranks : 1); ++rank) {
            if (rank > 0) all.emplace_back(":");
            all.insert(all.end(), {"-n", device_ == "cuda" ? "1" : std::to_string(ranks)});
            if (device_ == "cuda") all.insert(all.end(), {"-x", "NCCL_HOSTID=rank" + std::to_string(rank)});
            all.push_back((testing::program_folder() / "millrace").string());
            all.insert(all.end(), words.begin(), words.end());
        }
        return all;
    }
    /// Trains on `ranks` processes, or on one by itself.
    Said over(int ranks, const std::vector<std::string>& words) const {
        return ranks == 1 ? call(words) : call(words_over(ranks, words), mpirun());
    }

    static constexpr const char* kMpirun = "/usr/bin/mpirun";
    std::string device_ = "cpu";
};

inline std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

inline std::vector<std::string> set(const std::vector<std::string>& settings) {
    std::vector<std::string> words;
    for (const std::string& setting : settings) words = words + std::vector<std::string>{"--set", setting};
    return words;
}

/// Names of tensors of the newest checkpoints that are not the same to the bit.
inline std::vector<std::string> tensors_apart(const fs::path& left, const fs::path& right) {
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
inline std::vector<std::string> scores_of(const fs::path& run) {
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

inline const std::vector<std::string> kImages{"garments", "--train", "310", "--test", "40"}, kText{"text"},
    kPairs{"pairs", "--count", "90", "--dimensions", "24"}, kSounds{"hydrophone", "--files", "20"};

class FamilyOverRanks : public OverRanks, public ::testing::WithParamInterface<Family> {
protected:
    // Ragged ends leave some ranks fewer rows in an epoch's last step, or none; validation has more batches than ranks and a
    // tail.
    void expect_the_bits_of_one_process(const std::vector<std::string>& more) const {
        const Family& family = GetParam();
        ASSERT_EQ(
            call(std::vector<std::string>{"data", "make"} + family.make + std::vector<std::string>{"--out", path("set")}).status,
            0);
        const std::vector<std::string> words =
            std::vector<std::string>{"train", (testing::source_root() / "recipes" / family.recipe).string(), "--quiet"} +
            set({"device=" + device_, "data.path=" + path("set"), "optim.clip_norm=1", "telemetry.interval=0s"}) +
            set(family.settings) + set(more);
        const Said one = call(words + set({std::string("train.micro_batch=") + family.micro}) +
                              std::vector<std::string>{"--out", path("one")});
        ASSERT_EQ(one.status, 0) << one.err;
        const Said many = over(family.ranks, words + std::vector<std::string>{"--out", path("many")});
        ASSERT_EQ(many.status, 0) << many.err;
        EXPECT_EQ(tensors_apart(folder_ / "one", folder_ / "many"), std::vector<std::string>{});
        const auto scores = scores_of(folder_ / "one");
        EXPECT_FALSE(scores.empty());
        EXPECT_EQ(scores_of(folder_ / "many"), scores);
    }
};

inline std::vector<Family> families() {
    return {
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
               "4"}};
}

/// A run that would take long, with what it leaves compared to one that was never disturbed.
class LostRanks : public OverRanks {
protected:
    std::vector<std::string> words(const std::string& run) const {
        return train_words(run, set({"train.epochs=16", "train.batch=48", "checkpoint.every_epochs=2", "threads=1",
                                     "telemetry.interval=0s", "device=" + device_, "deterministic=true"}));
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
    /// One of three ranks gets a signal: the run ends with `status` and this on stderr, all are gone, and it goes on to equal
    /// bits.
    void expect_signal_ends(int victim, int signal, int status, const std::string& words_said,
                            const std::vector<std::string>& settings = {}) const {
        Child child(folder_.string(), words_over(3, words("run") + set(settings)), mpirun());
        const auto processes = ranks_of(child, 3, "run");
        ASSERT_EQ(processes.size(), 3u);
        kill(processes.at(victim), signal);
        const Said said = child.wait();
        EXPECT_EQ(said.status, status) << said.err;
        EXPECT_NE(said.err.find(words_said), std::string::npos) << said.err;
        if (signal == SIGTERM) {
            const auto manifest = record::read_manifest(folder_ / "run");
            ASSERT_TRUE(manifest.ok());
            EXPECT_EQ(manifest->status, record::RunStatus::kInterrupted);
        }
        expect_gone(processes);
        expect_whole_after_resuming("run");
    }
};

}  // namespace millrace::cli
