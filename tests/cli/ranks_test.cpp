// Training over several processes under the real mpirun: the bits of one process, and what happens when a rank is lost.

#include <cstdio>

#include "cli/over_ranks.h"
#include "small_disk.h"

namespace millrace::cli {
namespace {

TEST_P(FamilyOverRanks, GivesTheBitsOfOneProcess) { expect_the_bits_of_one_process({"threads=1"}); }

INSTANTIATE_TEST_SUITE_P(All, FamilyOverRanks, ::testing::ValuesIn(families()),
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

TEST_F(OverRanks, WhatOneRankLacksEndsAllWithOneError) {
    const std::string program = (testing::program_folder() / "millrace").string();
    for (const char* place : {"here", "there"}) fs::create_directory(folder_ / place);
    ASSERT_TRUE(data::make_garments(folder_ / "here/data", {300, 60, 7}).ok());
    const auto said_of = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"--allow-run-as-root"};
        for (const char* place : {"here", "there"})
            words = words + std::vector<std::string>{"-n", "1", "-wdir", path(place), program, "train", path("recipe.toml")} +
                    set({"data.path=data"}) + more + std::vector<std::string>{"--out", "run", ":"};
        words.pop_back();
        return call(words, mpirun());
    };
    const auto expect_one_error = [](const Said& said) {
        EXPECT_EQ(said.status, 2) << said.err;
        EXPECT_NE(said.err.find("rank 1 on "), std::string::npos) << said.err;
        EXPECT_EQ(said.err.find("rank 1 on "), said.err.rfind("rank 1 on ")) << said.err;
    };
    expect_one_error(said_of({}));  // behind the opening of devices
    ASSERT_EQ(call(train_words("here/start")).status, 0);
    fs::copy(folder_ / "here/data", folder_ / "there/data", fs::copy_options::recursive);
    expect_one_error(said_of({"--init", "start"}));  // before it
}

TEST_F(OverRanks, StepsWhosePartsAreTimedLeaveTheSameBits) {
    const auto words = [&](const char* run, const char* components) {
        return train_words(run,
                           set({"threads=1", "telemetry.components_every=2", std::string("telemetry.components=") + components}));
    };
    for (const auto& [name, more] : {std::pair{"plain", "off"}, std::pair{"timed", "on"}}) {
        const Said said = over(2, words(name, more));
        ASSERT_EQ(said.status, 0) << said.err;
    }
    EXPECT_EQ(tensors_apart(folder_ / "plain", folder_ / "timed"), std::vector<std::string>{});
    const auto rows = record::read_metrics(folder_ / "timed/metrics.jsonl");
    ASSERT_TRUE(rows.ok());
    EXPECT_TRUE(std::ranges::any_of(rows->rows, [](const auto& row) { return row.number("component/backward_ms").has_value(); }));
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

TEST_F(LostRanks, TerminatedOneSavesTheSameStepOnAll) { expect_signal_ends(1, SIGTERM, 143, ""); }

TEST_F(LostRanks, StoppedOneIsNamedByTheOthers) {
    expect_signal_ends(2, SIGSTOP, 75, "waited 2 s for the other ranks in step ", {"parallel.timeout=2s"});
}

}  // namespace
}  // namespace millrace::cli
