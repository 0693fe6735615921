#include <gtest/gtest.h>

#include "recorded_tree.h"
#include "sense/cgroup.h"
#include "sense/proc_file.h"
#include "sense/proc_readings.h"

namespace millrace::sense {
namespace {

using std::chrono::seconds;

TEST(ProcText, NumbersAreWholeWordsOrAbsent) {
    EXPECT_EQ(to_count("18446744073709551615"), 18446744073709551615u);
    for (const char* bad : {"", "-1", "18446744073709551616", "12x", " 1", "max"}) EXPECT_FALSE(to_count(bad)) << bad;
    EXPECT_EQ(to_number("1.25"), 1.25);
    for (const char* bad : {"", "nan", "inf", "1.2.3", "1e999"}) EXPECT_FALSE(to_number(bad)) << bad;
    EXPECT_EQ(find_count("Mem: 1\nMemTotal:  7 kB\nlast 3", "MemTotal"), 7u);
    EXPECT_EQ(find_count("Mem: 1\nlast 3", "last"), 3u);
    EXPECT_FALSE(find_count("MemTotal:\n", "MemTotal"));
    EXPECT_FALSE(find_count("", "MemTotal"));
}

TEST(ProcFile, GrowsForLongTextsAndTellsMissingFromEmpty) {
    const RecordedTree tree("workstation");
    const std::string text(100'001, 'x');
    tree.write("proc/long", text);
    tree.write("proc/empty", "");
    std::string buffer;
    EXPECT_EQ(ProcFile(tree.proc() + "/long").read(buffer), text);
    EXPECT_EQ(ProcFile(tree.proc() + "/empty").read(buffer), "");
    EXPECT_FALSE(ProcFile(tree.proc() + "/missing").read(buffer));
    EXPECT_FALSE(ProcFile(tree.proc()).read(buffer)) << "a folder";
    ProcFile later(tree.proc() + "/later");
    EXPECT_FALSE(later.read(buffer));
    tree.write("proc/later", "here");
    EXPECT_EQ(later.read(buffer), "here");
    tree.write("proc/later", "new");
    EXPECT_EQ(later.read(buffer), "new");
}

TEST(CoreList, ParsesRangesAndStopsAtNonsense) {
    EXPECT_EQ(parse_core_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
    EXPECT_EQ(parse_core_list("7,3,3-4"), (std::vector<int>{3, 4, 7}));
    EXPECT_EQ(parse_core_list("1,x,2"), (std::vector<int>{1}));
    EXPECT_TRUE(parse_core_list("").empty());
    EXPECT_TRUE(parse_core_list("4-1").empty());
    EXPECT_TRUE(parse_core_list("0-99999999999").empty());
    EXPECT_TRUE(parse_core_list("0-100000").empty());
    EXPECT_TRUE(parse_core_list("-3").empty());
}

TEST(Cores, AreThoseAllowedAndOnline) {
    const RecordedTree workstation("workstation");
    EXPECT_EQ(usable_cores(workstation.proc(), workstation.sys()), (std::vector<int>{0, 1, 3}));
    const RecordedTree container("container_v2");
    EXPECT_EQ(usable_cores(container.proc(), container.sys()), (std::vector<int>{1})) << "from the cpuset";
    EXPECT_EQ(usable_cores("/nowhere", "/nowhere"), std::vector<int>{});
}

TEST(Processor, NameComesFromTextOrFromTheNumbersOfArm) {
    EXPECT_EQ(processor_name(RecordedTree("workstation").proc()), "AMD EPYC 7B13");
    EXPECT_EQ(processor_name(RecordedTree("container_v2").proc()), "Neoverse-V1");
    EXPECT_EQ(processor_name(RecordedTree("sick").proc()), "");
    const RecordedTree other("container_v2");
    other.write("proc/cpuinfo", "CPU implementer\t: 0x61\nCPU part\t: 0x022\n");
    EXPECT_EQ(processor_name(other.proc()), "ARM implementer 0x61 part 0x022");
}

TEST(ProcCpu, UtilizationIsOverTheUsableCoresAndTheTimeSinceTheLastReading) {
    const RecordedTree tree("workstation");
    ProcCpu cpu(tree.proc(), tree.sys(), {0, 1, 3});
    CpuReading reading;
    cpu.read(seconds(1), reading);
    EXPECT_FALSE(reading.utilization);
    ASSERT_EQ(reading.cores.size(), 3u);
    EXPECT_FALSE(reading.cores[0]);
    EXPECT_EQ(reading.load_1m, 1.25);
    EXPECT_EQ(reading.load_5m, 0.75);
    EXPECT_EQ(reading.load_15m, 0.50);
    EXPECT_EQ(reading.pressure_percent, 12.5);
    EXPECT_FALSE(reading.limit_cores);
    EXPECT_FALSE(reading.throttled_percent);
    // Core 0: 40 busy, 60 idle, and iowait that steps back. Core 1: all busy, some stolen. Core 2 is not ours. Core 3 is gone.
    tree.write("proc/stat",
               "cpu 0 0 0 0 0 0 0 0\ncpu0 1020 0 110 1060 49 15 15 0 0 0\ncpu1 1050 0 120 1000 0 0 0 30 0 0\n"
               "cpu2 9000 0 9000 1000 0 0 0 0 0 0\nintr 5\n");
    cpu.read(seconds(2), reading);
    EXPECT_EQ(reading.cores[0], 40.0);
    EXPECT_EQ(reading.cores[1], 100.0);
    EXPECT_FALSE(reading.cores[2]);
    EXPECT_EQ(reading.utilization, 70.0);
    cpu.read(seconds(3), reading);
    EXPECT_FALSE(reading.utilization) << "no tick passed: nothing is known";
}

TEST(ProcCpu, SickTextsLeaveReadingsAbsent) {
    const RecordedTree tree("sick");
    ProcCpu cpu(tree.proc(), tree.sys(), usable_cores(tree.proc(), tree.sys()));
    CpuReading reading;
    for (int i = 0; i < 3; ++i) cpu.read(seconds(i), reading);
    for (const auto& core : reading.cores) EXPECT_FALSE(core);
    EXPECT_FALSE(reading.utilization || reading.load_1m || reading.load_5m || reading.load_15m || reading.pressure_percent);
    EXPECT_FALSE(reading.limit_cores || reading.throttled_percent);
    ProcCpu nothing("/nowhere", "/nowhere", {0, 1});
    nothing.read(seconds(1), reading);
    nothing.read(seconds(2), reading);
    EXPECT_EQ(reading.cores.size(), 2u);
    EXPECT_FALSE(reading.utilization || reading.load_1m);
}

TEST(CgroupCpu, SmallestQuotaOfTheAncestorsHolds) {
    const RecordedTree tree("container_v2");
    ProcCpu cpu(tree.proc(), tree.sys(), {0});
    CpuReading reading;
    cpu.read(seconds(10), reading);
    EXPECT_EQ(reading.limit_cores, 1.5);
    EXPECT_FALSE(reading.throttled_percent);
    // Five periods of 100 ms ran dry within two seconds.
    tree.write("sys/fs/cgroup/kube/pod1/trainer/cpu.stat", "nr_periods 120\nnr_throttled 25\n");
    cpu.read(seconds(12), reading);
    EXPECT_DOUBLE_EQ(reading.throttled_percent.value_or(-1), 25.0);
    // A parent that gets the smaller quota is another group: its counter has no past yet.
    tree.write("sys/fs/cgroup/kube/pod1/cpu.max", "50000 100000\n");
    cpu.read(seconds(14), reading);
    EXPECT_EQ(reading.limit_cores, 0.5);
    EXPECT_FALSE(reading.throttled_percent);
    tree.write("sys/fs/cgroup/kube/pod1/cpu.stat", "nr_periods 120\nnr_throttled 900\n");
    cpu.read(seconds(16), reading);
    EXPECT_EQ(reading.throttled_percent, 100.0) << "never above the clock";
}

TEST(CgroupCpu, VersionOneReadsQuotaAndPeriodFromTwoFiles) {
    const RecordedTree tree("container_v1");
    ProcCpu cpu(tree.proc(), tree.sys(), {0});
    CpuReading reading;
    cpu.read(seconds(1), reading);
    EXPECT_EQ(reading.limit_cores, 0.5);
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 20\nnr_throttled 9\n");
    cpu.read(seconds(2), reading);
    EXPECT_DOUBLE_EQ(reading.throttled_percent.value_or(-1), 50.0);
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    cpu.read(seconds(3), reading);
    EXPECT_FALSE(reading.limit_cores || reading.throttled_percent);
}

TEST(ProcMemory, WithoutLimitIsTheMachines) {
    const RecordedTree tree("workstation");
    MemoryReading reading;
    ProcMemory(tree.proc(), tree.sys()).read(reading);
    EXPECT_EQ(reading.total_bytes, 16000000.0 * 1024);
    EXPECT_EQ(reading.available_bytes, 10000000.0 * 1024);
    EXPECT_EQ(reading.used_bytes, 6000000.0 * 1024);
    EXPECT_EQ(reading.page_cache_bytes, 5600000.0 * 1024);
    EXPECT_EQ(reading.swap_total_bytes, 2000000.0 * 1024);
    EXPECT_EQ(reading.swap_used_bytes, 500000.0 * 1024);
    EXPECT_FALSE(reading.limit_bytes);
}

TEST(ProcMemory, SmallestLimitCountsAndTheTightestGroupSaysWhatIsLeft) {
    const RecordedTree tree("container_v2");
    ProcMemory memory(tree.proc(), tree.sys());
    MemoryReading reading;
    memory.read(reading);
    EXPECT_EQ(reading.limit_bytes, 4294967296.0);
    EXPECT_EQ(reading.total_bytes, 4294967296.0);
    // The group itself uses 1 GiB less its file pages; the pod around it has 1 GiB left, which is less than what the group has.
    EXPECT_EQ(reading.available_bytes, 1073741824.0);
    EXPECT_EQ(reading.used_bytes, 3221225472.0);
    EXPECT_EQ(reading.page_cache_bytes, 100000000.0);
    EXPECT_EQ(reading.swap_total_bytes, 0.0);
    EXPECT_EQ(reading.swap_used_bytes, 0.0);
    tree.write("sys/fs/cgroup/kube/pod1/memory.current", "2000000000\n");
    memory.read(reading);
    EXPECT_EQ(reading.available_bytes, 4294967296.0 - (1073741824.0 - 100000000.0));
}

TEST(ProcMemory, VersionOneInAContainerThatSeesTheHostsPath) {
    const RecordedTree tree("container_v1");
    ProcMemory memory(tree.proc(), tree.sys());
    MemoryReading reading;
    memory.read(reading);
    EXPECT_EQ(reading.limit_bytes, 2147483648.0);
    EXPECT_EQ(reading.used_bytes, 1073741824.0 - 173741824.0);
    EXPECT_FALSE(reading.swap_total_bytes) << "not in this meminfo, so not 0";
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    memory.read(reading);
    EXPECT_FALSE(reading.limit_bytes);
    EXPECT_EQ(reading.total_bytes, 8388608.0 * 1024);
    EXPECT_EQ(reading.available_bytes, 4800000.0 * 1024) << "as old kernels made one add it up";
}

TEST(ProcMemory, SickTextsLeaveReadingsAbsent) {
    const RecordedTree tree("sick");
    MemoryReading reading;
    ProcMemory(tree.proc(), tree.sys()).read(reading);
    EXPECT_FALSE(reading.total_bytes || reading.used_bytes || reading.page_cache_bytes || reading.swap_total_bytes);
    EXPECT_FALSE(reading.swap_used_bytes || reading.limit_bytes);
    EXPECT_EQ(reading.available_bytes, 10000000.0 * 1024);
    ProcMemory("/nowhere", "/nowhere").read(reading);
    EXPECT_FALSE(reading.total_bytes || reading.used_bytes || reading.available_bytes || reading.limit_bytes);
}

TEST(Cgroup, AControllerOutsideTheMountIsTheMountItself) {
    const RecordedTree tree("sick");
    const CgroupFolders where = find_cgroup("0::/../../etc\n", tree.sys(), "cpu");
    EXPECT_TRUE(where.version2);
    EXPECT_EQ(where.folders, std::vector<std::string>{tree.sys() + "/fs/cgroup"});
    EXPECT_TRUE(find_cgroup("", tree.sys(), "cpu").folders.empty());
    EXPECT_TRUE(find_cgroup("0::/", "/nowhere", "cpu").folders.empty());
}

TEST(Cgroup, HybridMachinesKeepControllersInVersionOne) {
    const RecordedTree tree("container_v1");
    tree.write("sys/fs/cgroup/unified/cgroup.controllers", "");
    EXPECT_FALSE(find_cgroup("4:memory:/\n0::/\n", tree.sys(), "memory").version2);
    EXPECT_TRUE(find_cgroup("4:memory:/\n0::/\n", tree.sys(), "pids").version2);
}

}  // namespace
}  // namespace millrace::sense
