#include "record/run_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "small_disk.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

Manifest manifest() {
    Manifest about;
    about.command = {"millrace", "train", "a.toml"};
    about.recipe = R"({"train": {"epochs": 5}})";
    about.device = "cpu";
    about.versions = {{"compiler", "12.2"}};
    return about;
}

TEST(RunDirectory, ManifestTellsHowTheRunEnded) {
    const test::TemporaryFolder folder;
    auto run = RunDirectory::open(folder / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_EQ(read_manifest(folder / "run")->status, RunStatus::kRunning);
    EXPECT_TRUE(fs::is_directory(run->checkpoints()));
    ASSERT_TRUE(run->finish(RunStatus::kInterrupted, 130).ok());
    const auto about = read_manifest(folder / "run");
    ASSERT_TRUE(about.ok());
    EXPECT_EQ(about->status, RunStatus::kInterrupted);
    EXPECT_EQ(about->exit_status, 130);
    EXPECT_EQ(about->recipe, R"({"train":{"epochs":5}})");
    EXPECT_EQ(about->command, manifest().command);
    EXPECT_EQ(about->versions.at("compiler"), "12.2");
    EXPECT_EQ(about->started.size(), std::string("2025-11-04T12:00:00Z").size());
    EXPECT_FALSE(about->ended.empty());
}

TEST(RunDirectory, FailedRunSaysWhy) {
    const test::TemporaryFolder folder;
    auto run = RunDirectory::open(folder / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(run->finish(RunStatus::kFailed, 1, "the disk is full").ok());
    const auto events = read_metrics(folder / "run/events.jsonl");
    ASSERT_EQ(events->rows.size(), 2u);
    EXPECT_EQ(std::get<std::string>(*events->rows.back().find("kind")), "failed");
    EXPECT_EQ(std::get<std::string>(*events->rows.back().find("text")), "the disk is full");
}

TEST(RunDirectory, EndIsWrittenOnADiskWithoutRoom) {
    const test::SmallDisk disk(256u << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    auto run = RunDirectory::open(disk.path() / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(run.ok()) << run.error().text();
    disk.fill();
    ASSERT_FALSE(io::write_atomically(disk.path() / "other", "text").ok());
    ASSERT_TRUE(run->finish(RunStatus::kFailed, 1).ok());
    const auto about = read_manifest(disk.path() / "run");
    ASSERT_TRUE(about.ok()) << about.error().text();
    EXPECT_EQ(about->status, RunStatus::kFailed);
    EXPECT_EQ(about->recipe, R"({"train":{"epochs":5}})");
}

TEST(RunDirectory, HalvesOfManifestsGoWithTheNextStart) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(RunDirectory::open(folder / "run", RunStart::kNew, manifest()).ok());
    const pid_t gone = ::fork();
    if (gone == 0) ::_exit(0);
    ::waitpid(gone, nullptr, 0);
    const std::string half = ".manifest.json.tmp-" + std::to_string(gone) + "-0";
    const std::vector<std::string> others{".manifest.json.tmp-" + std::to_string(::getpid()) + "-7", ".manifest.json.tmp-mine",
                                          ".manifest.json.tmp-" + std::to_string(gone) + "-0.bak"};
    ASSERT_TRUE(io::write_atomically(folder / ("run/" + half), "{").ok());
    for (const std::string& other : others) ASSERT_TRUE(io::write_atomically(folder / ("run/" + other), "{").ok());
    ASSERT_TRUE(RunDirectory::open(folder / "run", RunStart::kResume, manifest()).ok());
    EXPECT_FALSE(fs::exists(folder / ("run/" + half)));
    for (const std::string& other : others) EXPECT_TRUE(fs::exists(folder / ("run/" + other))) << other;
}

TEST(RunDirectory, NewerFormatIsCalledByItsName) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(io::write_atomically(folder / "manifest.json", R"({"format": 99, "state": "running"})").ok());
    EXPECT_NE(read_manifest(folder.path()).error().text().find("newer Millrace (format 99, this one reads up to 1)"),
              std::string::npos);
}

TEST(RunDirectory, ForeignFolderIsRefusedAndLeftAlone) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(io::write_atomically(folder / "thesis.tex", "precious").ok());
    for (const RunStart start : {RunStart::kNew, RunStart::kResume}) {
        const auto run = RunDirectory::open(folder.path(), start, manifest());
        ASSERT_FALSE(run.ok());
        EXPECT_EQ(run.error().exit_status, 2);
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{}), 1);
}

TEST(RunDirectory, LockOfAMissingRunIsRefusedAndLeavesNothing) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(lock_run(folder / "absent").ok());
    EXPECT_FALSE(lock_run(folder.path()).ok());
    EXPECT_TRUE(fs::is_empty(folder.path()));
    ASSERT_TRUE(RunDirectory::open(folder / "run", RunStart::kNew, manifest()).ok());
    auto held = lock_run(folder / "run");
    ASSERT_TRUE(held.ok()) << held.error().text();
    EXPECT_TRUE(is_being_written(folder / "run"));
    EXPECT_FALSE(RunDirectory::open(folder / "run", RunStart::kResume, manifest()).ok());
    EXPECT_TRUE(RunDirectory::open(folder / "run", RunStart::kResume, manifest(), std::move(held).value()).ok());
    EXPECT_FALSE(is_being_written(folder / "run"));
}

TEST(RunDirectory, OldRunIsKept) {
    const test::TemporaryFolder folder;
    {
        auto run = RunDirectory::open(folder.path(), RunStart::kNew, manifest());
        ASSERT_TRUE(run->metrics().append({{"step", std::int64_t{1}}}).ok());
        ASSERT_TRUE(run->finish(RunStatus::kFinished, 0).ok());
    }
    const auto refused = RunDirectory::open(folder.path(), RunStart::kNew, manifest());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("holds a run already (finished)"), std::string::npos);
    EXPECT_EQ(read_metrics(folder / "metrics.jsonl")->rows.size(), 1u);
}

TEST(RunDirectory, ManifestHasTheReasonOfTheEndAndWhereTheWeightsCameFrom) {
    const test::TemporaryFolder folder;
    {
        Manifest from = manifest();
        from.init = {"/runs/a", "0123456789abcdef"};
        auto run = RunDirectory::open(folder.path(), RunStart::kNew, from);
        ASSERT_TRUE(run->finish(RunStatus::kFinished, 0, "enough").ok());
    }
    EXPECT_EQ(read_manifest(folder.path())->reason, "enough");
    const auto run = RunDirectory::open(folder.path(), RunStart::kResume, manifest());
    ASSERT_TRUE(run.ok()) << run.error().text();
    const auto resumed = read_manifest(folder.path());
    EXPECT_TRUE(resumed->reason.empty()) << "the run goes on";
    ASSERT_TRUE(resumed->init);
    EXPECT_EQ(resumed->init->path, "/runs/a");
    EXPECT_EQ(resumed->init->checksum, "0123456789abcdef");
}

TEST(RunDirectory, ResumeGoesOnAndNotesIt) {
    const test::TemporaryFolder folder;
    std::string started;
    std::uint64_t offset = 0;
    {
        auto run = RunDirectory::open(folder.path(), RunStart::kNew, manifest());
        started = run->manifest().started;
        ASSERT_TRUE(run->metrics().append({{"step", std::int64_t{1}}}).ok());
        offset = run->metrics().offset();
        ASSERT_TRUE(run->metrics().append({{"step", std::int64_t{2}}}).ok());
    }
    Manifest again = manifest();
    again.command = {"millrace", "train", "--resume"};
    auto run = RunDirectory::open(folder.path(), RunStart::kResume, again);
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_EQ(run->manifest().started, started);
    ASSERT_EQ(run->manifest().resumed.size(), 1u);
    EXPECT_EQ(run->manifest().resumed[0].command, again.command);
    ASSERT_TRUE(run->metrics().truncate_to(offset).ok());
    ASSERT_TRUE(run->metrics().append({{"step", std::int64_t{3}}}).ok());
    const auto log = read_metrics(folder / "metrics.jsonl");
    ASSERT_EQ(log->rows.size(), 2u);
    EXPECT_EQ(log->rows[1].number("step"), 3);
    EXPECT_EQ(read_manifest(folder.path())->resumed.size(), 1u);
}

TEST(RunDirectory, NothingToResumeIsAnError) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(RunDirectory::open(folder / "missing", RunStart::kResume, manifest()).ok());
    EXPECT_FALSE(fs::exists(folder / "missing"));
    EXPECT_FALSE(RunDirectory::open(folder.path(), RunStart::kResume, manifest()).ok());
}

TEST(RunDirectory, SecondWriterIsRefused) {
    const test::TemporaryFolder folder;
    {
        auto run = RunDirectory::open(folder.path(), RunStart::kNew, manifest());
        ASSERT_TRUE(run.ok());
        EXPECT_TRUE(is_being_written(folder.path()));
        for (const RunStart start : {RunStart::kNew, RunStart::kResume}) {
            const auto second = RunDirectory::open(folder.path(), start, manifest());
            ASSERT_FALSE(second.ok());
            EXPECT_NE(second.error().text().find("another process"), std::string::npos);
        }
    }
    EXPECT_FALSE(is_being_written(folder.path()));
    EXPECT_TRUE(RunDirectory::open(folder.path(), RunStart::kResume, manifest()).ok());
}

TEST(RunDirectory, RemovedLockFileMakesNoRoomForASecondWriter) {
    const test::TemporaryFolder folder;
    const auto run = RunDirectory::open(folder / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(run.ok()) << run.error().text();
    fs::remove(folder / "run/.lock");
    EXPECT_TRUE(is_being_written(folder / "run"));
    const auto second = lock_run(folder / "run");
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().text().find("another process is writing"), std::string::npos) << second.error().text();
    EXPECT_FALSE(RunDirectory::open(folder / "run", RunStart::kResume, manifest()).ok());
}

TEST(RunDirectory, MovedRunEndsWhereItIsAndNotInAnother) {
    const test::TemporaryFolder folder;
    auto run = RunDirectory::open(folder / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(run.ok());
    fs::rename(folder / "run", folder / "moved");
    auto other = RunDirectory::open(folder / "run", RunStart::kNew, manifest());
    ASSERT_TRUE(other.ok()) << other.error().text();
    ASSERT_TRUE(run->finish(RunStatus::kFinished, 0).ok());
    EXPECT_EQ(read_manifest(folder / "moved")->status, RunStatus::kFinished);
    EXPECT_EQ(read_manifest(folder / "run")->status, RunStatus::kRunning);
    EXPECT_TRUE(fs::exists(run->checkpoints()));
    fs::remove_all(folder / "moved");
    const auto lost = run->finish(RunStatus::kFailed, 1);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().text().find("/proc/"), std::string::npos) << lost.error().text();
}

TEST(RunDirectory, BadManifestsAreErrors) {
    const test::TemporaryFolder folder;
    for (const char* text :
         {"", "[]", "{", R"({"format": 1})", R"({"format": 99, "status": "running"})", R"({"format": 1, "status": "asleep"})",
          R"({"format": 1, "status": "running", "command": 3})", R"({"format": 1, "status": "running", "resumed": [1]})",
          R"({"format": 1, "status": "running", "init": "x"})"}) {
        ASSERT_TRUE(io::write_atomically(folder / "manifest.json", text).ok());
        const auto about = read_manifest(folder.path());
        ASSERT_FALSE(about.ok()) << text;
        EXPECT_EQ(about.error().place, (folder / "manifest.json").string());
    }
}

TEST(Metrics, RowsReadBack) {
    const test::TemporaryFolder folder;
    auto writer = MetricsWriter::open(folder / "m");
    ASSERT_TRUE(
        writer->append({{"step", std::int64_t{12}}, {"loss", 0.1}, {"note", std::string("a \"b\"\n")}, {"best", true}}).ok());
    ASSERT_TRUE(writer->append({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"tiny", 5e-324}, {"whole", 3.0}}).ok());
    ASSERT_TRUE(writer->append(std::span<const Metric>{}).ok());
    const auto log = read_metrics(folder / "m");
    ASSERT_EQ(log->rows.size(), 3u);
    EXPECT_EQ(log->skipped, 0u);
    EXPECT_EQ(log->rows[0].number("step"), 12);
    EXPECT_EQ(log->rows[0].number("loss"), 0.1);
    EXPECT_EQ(std::get<std::string>(*log->rows[0].find("note")), "a \"b\"\n");
    EXPECT_EQ(std::get<bool>(*log->rows[0].find("best")), true);
    EXPECT_FALSE(log->rows[0].number("note").has_value());
    EXPECT_FALSE(log->rows[0].number("missing").has_value());
    EXPECT_TRUE(std::isnan(*log->rows[1].number("loss")));
    EXPECT_EQ(log->rows[1].number("tiny"), 5e-324);
    EXPECT_EQ(log->rows[1].number("whole"), 3);
}

TEST(Metrics, TornAndForeignLinesAreCounted) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(io::write_atomically(folder / "m", "{\"a\": 1}\nhello\n{\"a\": [1]}\n\n{\"a\": 2}\n{\"a\": 3").ok());
    auto log = read_metrics(folder / "m");
    EXPECT_EQ(log->rows.size(), 2u);
    EXPECT_EQ(log->skipped, 4u);
    auto writer = MetricsWriter::open(folder / "m");
    ASSERT_TRUE(writer->append({{"a", std::int64_t{4}}}).ok());
    log = read_metrics(folder / "m");
    ASSERT_EQ(log->rows.size(), 3u);
    EXPECT_EQ(log->rows[2].number("a"), 4);
}

}  // namespace
}  // namespace millrace::record
