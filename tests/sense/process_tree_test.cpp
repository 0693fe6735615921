#include "sense/process_tree.h"

#include <gtest/gtest.h>

#include "recorded_tree.h"

namespace millrace::sense {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ProcessStat, NameMayHoldBlanksAndBrackets) {
    const auto stat = parse_process_stat("7 (a) S 9 (b) R 3 1 1 0 -1 0 0 0 0 0 5 6 7 8 20 0 4 0 99 100 12 0 0\n");
    ASSERT_TRUE(stat);
    EXPECT_EQ(stat->state, 'R');
    EXPECT_EQ(stat->parent, 3);
    EXPECT_EQ(stat->own_ticks, 11u);
    EXPECT_EQ(stat->waited_ticks, 15u);
    EXPECT_EQ(stat->threads, 4u);
    EXPECT_EQ(stat->started, 99u);
    EXPECT_EQ(stat->resident_pages, 12u);
    for (const char* bad : {"", "7", "7 (a", "7 (a)", "7 (a) R", "7 (a) R x", "7 (a) R 3 1 1 0 -1 0 0 0 0 0 5 6 7 8 20 0 4 0 99"})
        EXPECT_FALSE(parse_process_stat(bad)) << bad;
}

class ProcessTreeOfWorkstation : public ::testing::Test {
protected:
    RecordedTree files_{"workstation"};
    ProcessTree tree_{files_.proc(), 100, 100, 4096};
};

TEST_F(ProcessTreeOfWorkstation, ChildrenOfEveryThreadBelongToIt) {
    const ProcessTree::Reading reading = tree_.read(seconds(1));
    EXPECT_EQ(reading.process.count, 2.0) << "the zombie is none";
    EXPECT_EQ(reading.process.threads, 3.0);
    EXPECT_EQ(reading.resident_bytes, 2300.0 * 4096);
    EXPECT_FALSE(reading.utilization || reading.disk.read_bytes_per_second);
    EXPECT_EQ(tree_.members(), (std::vector<pid_t>{100, 101}));
}

TEST_F(ProcessTreeOfWorkstation, RatesAreOverTheTimeSinceTheLastReading) {
    tree_.read(seconds(1));
    files_.write_process({.pid = 100, .parent = 1, .user = 550, .system = 120, .waited = 50, .threads = 2});
    files_.write_process({.pid = 101, .parent = 100, .user = 100, .system = 10, .started = 1500});
    files_.write_io(100, 1000, 400, 1050);
    files_.write_io(101, 5000 + 8000, 1000 + 2000, 0);
    const ProcessTree::Reading reading = tree_.read(seconds(3));
    EXPECT_DOUBLE_EQ(reading.utilization.value_or(-1), (70 + 70) / 2.0);
    EXPECT_DOUBLE_EQ(reading.disk.request_bytes_per_second.value_or(-1), 4000);
    EXPECT_DOUBLE_EQ(reading.disk.read_bytes_per_second.value_or(-1), 1000);
    EXPECT_DOUBLE_EQ(reading.disk.write_bytes_per_second.value_or(-1), 500);
    EXPECT_DOUBLE_EQ(reading.disk.cached_percent.value_or(-1), 75);
    const ProcessTree::Reading idle = tree_.read(seconds(4));
    EXPECT_EQ(idle.utilization, 0.0);
    EXPECT_EQ(idle.disk.request_bytes_per_second, 0.0);
    EXPECT_FALSE(idle.disk.cached_percent) << "a share of nothing";
}

TEST_F(ProcessTreeOfWorkstation, AChildThatEndedAndWasWaitedForIsCountedOnce) {
    tree_.read(seconds(1));
    // 101 had 40 ticks, worked 10 more and ended: its parent inherits 50, and its transfers.
    files_.remove("proc/101");
    files_.write("proc/100/task/100/children", "");
    files_.write_process({.pid = 100, .parent = 1, .user = 500, .system = 100, .waited = 100, .threads = 2});
    files_.write_io(100, 1000 + 5600, 400 + 1000, 50);
    const ProcessTree::Reading reading = tree_.read(seconds(2));
    EXPECT_DOUBLE_EQ(reading.utilization.value_or(-1), 10);
    EXPECT_DOUBLE_EQ(reading.disk.request_bytes_per_second.value_or(-1), 600);
    EXPECT_DOUBLE_EQ(reading.disk.read_bytes_per_second.value_or(-1), 0);
    EXPECT_EQ(tree_.read(seconds(3)).utilization, 0.0);
}

TEST_F(ProcessTreeOfWorkstation, AChildThatVanishedAfterItsParentWasReadIsCountedOnce) {
    tree_.read(seconds(1));
    files_.remove("proc/101");  // still listed, and not yet in the parent's counters
    EXPECT_EQ(tree_.read(seconds(2)).utilization, 0.0);
    files_.write_process({.pid = 100, .parent = 1, .user = 500, .system = 100, .waited = 100, .threads = 2});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(3)).utilization.value_or(-1), 10);
}

TEST_F(ProcessTreeOfWorkstation, AChildNobodyWaitsForNeitherCostsNorHidesLaterWork) {
    tree_.read(seconds(1));
    files_.remove("proc/101");
    EXPECT_EQ(tree_.read(seconds(2)).utilization, 0.0);
    EXPECT_EQ(tree_.read(seconds(3)).utilization, 0.0);
    files_.write_process({.pid = 100, .parent = 1, .user = 500, .system = 100, .waited = 75, .threads = 2});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(4)).utilization.value_or(-1), 25) << "of another child, never seen";
}

TEST_F(ProcessTreeOfWorkstation, ParentAndChildThatEndTogetherReachTheGrandparentOnce) {
    files_.write("proc/101/task/101/children", "110");
    files_.write_process({.pid = 110, .parent = 101, .user = 20});
    tree_.read(seconds(1));
    files_.remove("proc/101");
    files_.remove("proc/110");
    files_.write("proc/100/task/100/children", "");
    files_.write_process({.pid = 100, .parent = 1, .user = 500, .system = 100, .waited = 50 + 40 + 20 + 5, .threads = 2});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(2)).utilization.value_or(-1), 5);
}

TEST_F(ProcessTreeOfWorkstation, ADescendantStaysAMemberWhenItsParentDies) {
    files_.write("proc/101/task/101/children", "110");
    files_.write_process({.pid = 110, .parent = 101, .user = 20});
    files_.write("proc/110/task/110/children", "");
    tree_.read(seconds(1));
    files_.remove("proc/101");
    files_.write("proc/100/task/100/children", "");
    files_.write_process({.pid = 110, .parent = 1, .user = 90});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(2)).utilization.value_or(-1), 70);
    EXPECT_EQ(tree_.members(), (std::vector<pid_t>{100, 110}));
}

TEST_F(ProcessTreeOfWorkstation, ANumberGivenOutAgainIsANewProcess) {
    tree_.read(seconds(1));
    files_.write_process({.pid = 101, .parent = 900, .user = 5000, .started = 7000});
    const ProcessTree::Reading reading = tree_.read(seconds(2));
    EXPECT_EQ(reading.utilization, 0.0);
    EXPECT_EQ(tree_.members(), (std::vector<pid_t>{100}));
}

TEST_F(ProcessTreeOfWorkstation, ANewProcessIsCreditedWithAllItDid) {
    tree_.read(seconds(1));
    files_.write("proc/100/task/105/children", "102 103 99999 x");
    files_.write_process({.pid = 103, .parent = 100, .user = 30, .system = 5, .waited = 5, .started = 2000});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(2)).utilization.value_or(-1), 40);
    EXPECT_EQ(tree_.read(seconds(3)).utilization, 0.0);
}

TEST_F(ProcessTreeOfWorkstation, TransfersAreAbsentWhenTheyMayNotBeRead) {
    files_.remove("proc/100/io");
    files_.remove("proc/101/io");
    tree_.read(seconds(1));
    const ProcessTree::Reading reading = tree_.read(seconds(2));
    EXPECT_TRUE(reading.utilization);
    EXPECT_FALSE(reading.disk.read_bytes_per_second || reading.disk.write_bytes_per_second ||
                 reading.disk.request_bytes_per_second || reading.disk.cached_percent);
}

TEST_F(ProcessTreeOfWorkstation, ATruncatedLineIsNoDeathAndMakesNoJump) {
    tree_.read(seconds(1));
    files_.write("proc/100/stat", "100 (python3 (a b) c) S 1 1");
    EXPECT_EQ(tree_.read(seconds(2)).utilization, 0.0);
    files_.write_process({.pid = 100, .parent = 1, .user = 510, .system = 100, .waited = 50, .threads = 2});
    EXPECT_DOUBLE_EQ(tree_.read(seconds(3)).utilization.value_or(-1), 10);
}

TEST_F(ProcessTreeOfWorkstation, EverythingIsAbsentOnceItIsGone) {
    tree_.read(seconds(1));
    for (const char* path : {"proc/100", "proc/101", "proc/102"}) files_.remove(path);
    const ProcessTree::Reading reading = tree_.read(seconds(2));
    EXPECT_FALSE(reading.process.count || reading.process.threads || reading.resident_bytes || reading.utilization);
    EXPECT_TRUE(tree_.members().empty());
}

TEST(ProcessTree, WithoutChildrenFilesTheMachineIsScannedOnceASecond) {
    const RecordedTree files("workstation");
    files.remove("proc/100/task");
    ProcessTree tree(files.proc(), 100, 100, 4096);
    EXPECT_EQ(tree.read(seconds(10)).process.count, 2.0);
    files.write_process({.pid = 103, .parent = 101, .user = 50, .started = 2000});
    EXPECT_EQ(tree.read(seconds(10) + milliseconds(500)).process.count, 2.0);
    // Found after a second, its work is spread over that second and not over the last half.
    const ProcessTree::Reading reading = tree.read(seconds(11));
    EXPECT_EQ(reading.process.count, 3.0);
    EXPECT_DOUBLE_EQ(reading.utilization.value_or(-1), 50);
}

TEST(ProcessTree, SickFilesAreSkipped) {
    const RecordedTree files("sick");
    ProcessTree tree(files.proc(), 200, 100, 4096);
    tree.read(seconds(1));
    const ProcessTree::Reading reading = tree.read(seconds(2));
    EXPECT_EQ(tree.members(), (std::vector<pid_t>{200, 204}));
    EXPECT_EQ(reading.process.threads, 4.0);
    EXPECT_FALSE(reading.disk.read_bytes_per_second);
    for (const pid_t root : {100, 202, 4711}) {
        ProcessTree other(files.proc(), root, 100, 4096);
        other.read(seconds(1));
        EXPECT_LE(other.read(seconds(2)).process.count.value_or(0), 2.0) << root;  // 202 and 203 claim to be each other's child
    }
}

}  // namespace
}  // namespace millrace::sense
