#include "comm/group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

#include "comm/nccl.h"
#include "comm/reduce.h"
#include "comm/watchdog.h"

namespace millrace::comm {
namespace {

using namespace std::chrono_literals;

Launch launched_with(const std::map<std::string, std::string>& variables) {
    return launch([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(Launch, IsReadFromTheEnvironment) {
    EXPECT_EQ(launched_with({}), Launch::kAlone);
    EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}}), Launch::kGroup);
    EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}), Launch::kAlone);
    EXPECT_EQ(launched_with({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), Launch::kGroup);
    EXPECT_EQ(launched_with({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), Launch::kAlone);
    EXPECT_EQ(launched_with({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}), Launch::kApart);
}

TEST(Launch, BatchScriptIsAlone) {
    EXPECT_EQ(launched_with({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), Launch::kAlone);
}

TEST(Launch, MpirunInsideAStepIsAGroup) {
    EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}}), Launch::kGroup);
}

TEST(SingleGroup, GivesBackWhatItIsGiven) {
    const auto opened = open_group();
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    Group& group = **opened;
    EXPECT_EQ(group.size(), 1);
    EXPECT_EQ(group.local_size(), 1);
    ASSERT_EQ(group.hosts().size(), 1u);
    const float sent[3] = {1, 2, 3};
    float received[3] = {};
    EXPECT_TRUE(group.all_to_all(sent, received, sizeof sent).ok());
    EXPECT_EQ(std::memcmp(sent, received, sizeof sent), 0);
    EXPECT_TRUE(group.all_gather(received, received, sizeof sent).ok());
    EXPECT_TRUE(OrderedSum(group, 3).reduce(received, 3).ok());
    EXPECT_EQ(received[2], 3);
    const auto texts = group.all_lists(std::string("recipe"));
    ASSERT_TRUE(texts.ok());
    EXPECT_EQ(*texts, std::vector<std::string>{"recipe"});
    EXPECT_EQ(group.waits().count(), 0);
}

TEST(UnderWay, CountsScopesAndKnowsWhenItLastChanged) {
    UnderWay waits;
    EXPECT_EQ(waits.count(), 0);
    const auto before = UnderWay::Clock::now();
    {
        const UnderWay::Scope first(waits);
        EXPECT_EQ(waits.count(), 1);
        const auto began = waits.changed();
        EXPECT_GE(began, before);
        {
            const UnderWay::Scope second(waits);
            EXPECT_EQ(waits.count(), 2);
            EXPECT_GE(waits.changed(), began);
        }
        EXPECT_EQ(waits.count(), 1);
    }
    EXPECT_EQ(waits.count(), 0);
    EXPECT_LE(waits.changed(), UnderWay::Clock::now());
}

/// A group of two whose other rank never comes.
class Lonely : public Group {
public:
    Lonely() : Group(&kTable, {1, 2, 1, 2}, {"near", "far"}) {}

private:
    static constexpr MpiTable kTable = {
        .barrier = [](int) -> const char* {
            for (;;) std::this_thread::sleep_for(1s);
        },
        .all_reduce = [](int, float*, std::size_t) { return "no such peer"; },
        .close = []() -> const char* { return nullptr; },
    };
};

TEST(WatchdogDeath, NamesRankHostAndStep) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            Lonely group;
            Watchdog watchdog(group, 50ms);
            watchdog.at_step(1234);
            (void)group.barrier();
        },
        ::testing::ExitedWithCode(75), "rank 1 of 2 on far: waited 0.05 s for the other ranks in step 1234");
}

TEST(Watchdog, LeavesWorkOutsideOfCollectivesAlone) {
    Lonely group;
    Watchdog watchdog(group, 20ms);
    std::this_thread::sleep_for(100ms);
    const auto pause = watchdog.pause();
    const UnderWay::Scope waits(group.waits());
    std::this_thread::sleep_for(100ms);
}

TEST(Watchdog, ZeroIsNever) {
    Lonely group;
    Watchdog watchdog(group, 0ms);
    const UnderWay::Scope waits(group.waits());
    std::this_thread::sleep_for(50ms);
}

TEST(Group, FailureAbandonsIt) {
    Lonely group;
    EXPECT_FALSE(group.all_reduce(nullptr, 0).ok());
    EXPECT_TRUE(group.abandoned());
}

TEST(Nccl, AbsentLibrarySaysWhereToGetIt) {
    setenv("MILLRACE_NCCL", "/nowhere/libnccl.so.2", 1);
    Group group;
    const auto opened = Nccl::open(group);
    unsetenv("MILLRACE_NCCL");
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().text().find("libnccl2"), std::string::npos) << opened.error().text();
    EXPECT_NE(opened.error().text().find("MILLRACE_NCCL"), std::string::npos);
}

}  // namespace
}  // namespace millrace::comm
