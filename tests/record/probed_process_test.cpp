#include "record/probed_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "record/probe_files.h"
#include "record/recorded_program.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

using test::FakeProbe;
using Recorded = RecordedProgram;

TEST_F(Recorded, WindowsAndBetweenThemBlocksOfCountedSteps) {
    ProbedProcess process = attach();
    run(process, 150);
    run(process, 850);
    process.finish(now_, *trace_, *events_);
    const std::uint64_t windows = process.schedule().windows();
    EXPECT_GE(windows, 3u);
    EXPECT_LE(windows, 7u);
    EXPECT_EQ(process.schedule().order().pulse_call, CallKind::kEventRecord);
    EXPECT_EQ(process.main_thread(), 77u);
    EXPECT_NEAR(process.steps(), 1000, 1);
    EXPECT_NE(process.steps_doubt(), "") << "an event may be an evaluation's";
    const Seen seen = read();
    EXPECT_LE(seen.of(RecordKind::kWindow), 2 * windows + 1);
    EXPECT_GE(seen.of(RecordKind::kWindow), 2 * windows);
    EXPECT_EQ(seen.of(RecordKind::kPulse), 0u) << "pulses are summed up";
    EXPECT_GE(seen.of(RecordKind::kWork), 20u * 100);
    EXPECT_LE(seen.of(RecordKind::kWork), 20u * (60 + 30 * windows));
    ASSERT_GE(seen.blocks.size(), 8u);
    for (const TraceBlock& block : seen.blocks) {
        EXPECT_NEAR(static_cast<double>(block.end - block.begin) / block.steps, 8e6, 1e3);
        EXPECT_EQ(block.pid, 4321u);
    }
    ASSERT_TRUE(process.schedule().window_cost());
    EXPECT_NEAR(*process.schedule().window_cost(), 0.2, 0.02);
    EXPECT_NE(events_text().find("window_begun"), std::string::npos);
    EXPECT_EQ(process.dropped(), 0u);
}

TEST_F(Recorded, NoBlockReachesAcrossATimeWithoutCounting) {
    marks_ = false;  // each launch is counted: 0.54 % of the time, so it stops for 0.74 of every 10 seconds
    step_ns_ = 1'850'000;
    ScheduleSettings settings;
    settings.every = 1'000'000;
    ProbedProcess process = attach(settings);
    bool stopped = false;
    for (int number = 0; number < 1200; ++number) {
        run(process, 10);
        stopped = stopped || mode_ == ProbeMode::kOff;
    }
    process.finish(now_, *trace_, *events_);
    EXPECT_EQ(process.schedule().order().pulse_call, CallKind::kLaunch);
    EXPECT_TRUE(stopped);
    const Seen seen = read();
    ASSERT_GE(seen.blocks.size(), 30u);
    for (const TraceBlock& block : seen.blocks)
        EXPECT_NEAR(static_cast<double>(block.end - block.begin) / block.steps, 1.85e6, 1e3) << block.begin;
}

TEST_F(Recorded, PulsesOfAnotherCallEndNoStep) {
    ProbedProcess process = attach();
    run(process, 400);
    ASSERT_EQ(process.schedule().order().pulse_call, CallKind::kEventRecord);
    for (int number = 0; number < 300; ++number) {
        run(process, 1);
        pulse(CallKind::kLaunch);  // with the number of the last one, half a step later
    }
    process.finish(now_, *trace_, *events_);
    const Seen seen = read();
    ASSERT_GE(seen.blocks.size(), 4u);
    const auto is_short = [](const TraceBlock& block) { return block.end - block.begin < 490'000'000u; };
    EXPECT_LE(static_cast<std::uint64_t>(std::ranges::count_if(seen.blocks, is_short)), process.schedule().windows())
        << "those before a window, cut by none of the others";
}

TEST_F(Recorded, TightBudgetKeepsWindowsAlone) {
    ScheduleSettings settings;
    settings.cost_share = 0;
    ProbedProcess process = attach(settings);
    run(process, 600);
    ASSERT_EQ(process.schedule().windows(), 1u);
    const std::size_t before = read().records.size();
    for (int number = 0; number < 100; ++number) {
        call(CallKind::kAlloc);
        run(process, 1, {0, true});
    }
    EXPECT_EQ(read().records.size(), before);
    for (int number = 0; number < 20; ++number) {
        call(CallKind::kAlloc);
        run(process, 10);
    }
    EXPECT_GT(read().records.size(), before);
}

TEST_F(Recorded, FaultNamesWhoIsInTheWay) {
    ProbedProcess process = attach();
    probe_.header().state.fault.store(static_cast<std::uint32_t>(ProbeFault::kOtherClient));
    std::strcpy(probe_.header().state.incumbent, "another-profiler");
    run(process, 20);
    process.finish(now_, *trace_, *events_);
    read();
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_NE(notes_[0].find("another-profiler"), std::string::npos) << notes_[0];
    EXPECT_NE(events_text().find("probe_fault"), std::string::npos);
}

TEST_F(Recorded, LostRecordsAreToldOf) {
    ProbedProcess process = attach();
    for (std::uint32_t number = 0; number < kLaneSlots + 50; ++number) call(CallKind::kLaunch);
    Record lost;
    lost.kind = RecordKind::kLost;
    lost.flags = kLostByCupti;
    lost.bytes = 7;
    probe_.write(5, {lost});
    process.tick(now_, {}, *trace_, *events_);
    EXPECT_EQ(process.dropped(), 57u);
    EXPECT_NE(events_text().find("records_dropped"), std::string::npos);
}

TEST(ProbeFolder, HandsEachMappingOutOnceAndGoesWithEverything) {
    const test::TemporaryFolder fallback;
    io::Path where;
    {
        auto folder = ProbeFolder::create(fallback.path());
        ASSERT_TRUE(folder.ok()) << folder.error().text();
        where = folder->path();
        EXPECT_TRUE(folder->look().empty());
        std::ofstream(where / "12.probe") << "half";
        std::ofstream(where / "words.probe") << "x";
        const FakeProbe probe(where, 99);
        auto found = folder->look();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].pid, 99u);
        EXPECT_EQ(found[0].incarnation, 0u);
        EXPECT_TRUE(folder->look().empty());
        std::filesystem::copy(probe.path(), where / "99-1.probe");
        found = folder->look();
        ASSERT_EQ(found.size(), 1u);
        EXPECT_EQ(found[0].incarnation, 1u);
        ProbeFolder::remove(found[0].path);
        EXPECT_FALSE(std::filesystem::exists(where / "99-1.probe"));
        const auto mode = std::filesystem::status(where).permissions();
        EXPECT_EQ(mode & std::filesystem::perms::all, std::filesystem::perms::owner_all);
    }
    EXPECT_FALSE(std::filesystem::exists(where));
}

TEST(ProbeFolder, FolderOfARecordingThatWasKilledIsRemovedByTheNext) {
    const test::TemporaryFolder fallback;
    auto folder = ProbeFolder::create(fallback.path());
    ASSERT_TRUE(folder.ok()) << folder.error().text();
    const io::Path parent = folder->path().parent_path();
    const std::string mark = std::to_string(::getpid());
    const auto make = [&](const std::string& name, int age) {
        const io::Path made = parent / ("millrace-probe-" + mark + name);
        std::filesystem::create_directory(made);
        std::ofstream(made / ".lock") << "";
        std::ofstream(made / "12.probe") << "left";
        std::filesystem::last_write_time(made, std::filesystem::file_time_type::clock::now() - std::chrono::seconds{age});
        return made;
    };
    const io::Path killed = make("killed", 3600), fresh = make("fresh", 1), held = make("held", 3600);
    const auto lock = io::open_file(held / ".lock", O_RDONLY);
    ASSERT_TRUE(lock.ok() && ::flock(lock->get(), LOCK_EX | LOCK_NB) == 0);
    std::filesystem::last_write_time(folder->path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours{1});

    const auto next = ProbeFolder::create(fallback.path());
    ASSERT_TRUE(next.ok()) << next.error().text();
    EXPECT_FALSE(std::filesystem::exists(killed));
    for (const io::Path& used : {fresh, held, folder->path()}) EXPECT_TRUE(std::filesystem::exists(used)) << used;
    for (const io::Path& made : {fresh, held}) std::filesystem::remove_all(made);
}

}  // namespace
}  // namespace millrace::record
