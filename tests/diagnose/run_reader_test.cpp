#include "diagnose/reading/run_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "io/checkpoint.h"
#include "record/sink_rig.h"
#include "record/sinks.h"
#include "temporary_folder.h"

namespace millrace::diagnose {
namespace {

using namespace record;
using namespace record::test_rig;
namespace fs = std::filesystem;

Manifest read_manifest() {
    Manifest about;
    about.command = {"millrace", "train", "a.toml"};
    about.device = "cpu";
    return about;
}

void write_text(const io::Path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

TEST(ParseStream, CountsWhatIsTornForeignNestedOrTooLong) {
    ReadLimits limits;
    limits.line_bytes = 100;
    const std::string text =
        "{\"kind\": \"interval\", \"step\": 1}\nno json\n[1]\n7\n\n{\"a\": {}}\n{\"a\": [1]}\n{\"a\": 1} {}\n{\"a\": \"" +
        std::string(100, 'x') + "\"}\n{\"step\": 18446744073709551615}\n{\"step\": 2";
    const RunStream stream = parse_stream(text, limits);
    ASSERT_EQ(stream.rows.size(), 2u);
    EXPECT_EQ(stream.total, 2u);
    EXPECT_EQ(stream.skipped, 9u);
    EXPECT_TRUE(stream.torn);
    EXPECT_EQ(stream.rows[1].number("step"), 18446744073709551615.0);
}

TEST(ParseStream, DeepNestingCostsNothing) {
    const RunStream stream = parse_stream(std::string(900000, '[') + "\n{\"a\":" + std::string(900000, '{') + "\n");
    EXPECT_EQ(stream.skipped, 2u);
}

TEST(ParseStream, BeyondTheLimitRowsOfTheClockAreThinnedAndOthersStay) {
    ReadLimits limits;
    limits.rows = 50;
    std::string text;
    for (int i = 0; i < 1000; ++i) {
        text += "{\"kind\": \"interval\", \"i\": " + std::to_string(i) + "}\n";
        if (i % 100 == 99) text += "{\"kind\": \"epoch\", \"i\": " + std::to_string(i) + "}\n";
    }
    const RunStream stream = parse_stream(text, limits);
    EXPECT_EQ(stream.total, 1010u);
    EXPECT_LE(stream.rows.size(), 50u);
    EXPECT_GE(stream.rows.size(), 25u);
    int epochs = 0;
    double last = -1, gap = 0;
    for (const MetricsRow& row : stream.rows) {
        if (std::get<std::string>(*row.find("kind")) == "epoch") {
            ++epochs;
            continue;
        }
        const double now = row.number("i").value();
        if (last >= 0 && gap == 0) gap = now - last;
        EXPECT_TRUE(last < 0 || now - last == gap) << "unevenly thinned at " << now;
        last = now;
    }
    EXPECT_EQ(epochs, 10);
    EXPECT_GE(last, 1000 - 2 * gap) << "the newest are among them";
}

TEST(ParseStream, TextLimitBoundsMemoryAndNothingThinnableIsLeftOut) {
    ReadLimits limits;
    limits.text_bytes = 1000;
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "{\"kind\": \"epoch\", \"i\": 1}\n";
    const RunStream stream = parse_stream(text, limits);
    EXPECT_EQ(stream.total, 100000u);
    EXPECT_EQ(stream.rows.size(), 1000u / 25);
    EXPECT_EQ(stream.skipped, 0u);
}

/// Of a run, as its writer left them.
RunStream events_in(const io::Path& folder) {
    const auto text = io::read_text(folder / "events.jsonl");
    return text.ok() ? parse_stream(*text) : RunStream{};
}

std::string text_of(const MetricsRow& row, std::string_view key) { return std::get<std::string>(*row.find(key)); }

/// Checkpoints whose state cannot be used.
std::size_t broken_checkpoints(const io::Path& folder) {
    std::size_t broken = 0;
    const auto folders = io::checkpoint_folders(folder / "checkpoints");
    if (!folders.ok()) return 0;
    for (const io::Path& each : *folders) {
        auto text = io::read_text(each / "state.json");
        broken += text.ok() && io::parse_checkpoint_state(std::move(*text), each / "state.json").ok() ? 0 : 1;
    }
    return broken;
}

TEST(Manifest, DeepNestingIsRefusedNotFollowed) {
    const std::string deep = R"({"format": 1, "status": "running", "recipe": )" + std::string(200000, '[');
    EXPECT_FALSE(parse_manifest(deep, "m").ok());
    const std::string closed =
        R"({"format": 1, "status": "running", "recipe": {"a": )" + std::string(100000, '[') + std::string(100000, ']') + "}}";
    EXPECT_FALSE(parse_manifest(closed, "m").ok());
    const std::string fine = R"({"format": 1, "status": "running", "recipe": {"a": ")" + std::string(1000, '[') + "\\\"[\"}}";
    EXPECT_TRUE(parse_manifest(fine, "m").ok()) << "brackets in text do not nest";
}

TEST(ReadRun, GivesEverythingTheRunHolds) {
    const test::TemporaryFolder folder;
    {
        auto run = RunDirectory::open(folder / "run", RunStart::kNew, read_manifest());
        ASSERT_TRUE(run.ok());
        ASSERT_TRUE(run->metrics().append({{"kind", "interval"}, {"step", std::int64_t{1}}, {"loss", 0.5}}).ok());
        auto samples = json_lines_sink(run->samples());
        ASSERT_TRUE((*samples)->write(row_of(busy_sample(0))).ok());
        ASSERT_TRUE(run->events().append("warning", "the loader is slow", {{"share_percent", 12.5}}).ok());
        auto store = io::CheckpointStore::open(run->checkpoints());
        const float weight = 1;
        io::Checkpoint checkpoint;
        checkpoint.step = 12;
        checkpoint.members.push_back({{io::float_tensor("w", {1}, std::span(&weight, 1))}, {}});
        ASSERT_TRUE(store->save(checkpoint, true).ok());
        const auto live = read_run(folder / "run");
        ASSERT_TRUE(live.ok()) << live.error().text();
        EXPECT_TRUE(live->being_written);
        EXPECT_FALSE(live->was_killed());
        ASSERT_TRUE(run->finish(RunStatus::kFinished, 0).ok());
    }
    const auto run = read_run(folder / "run");
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_EQ(run->manifest.status, RunStatus::kFinished);
    EXPECT_FALSE(run->being_written);
    EXPECT_FALSE(run->was_killed());
    EXPECT_EQ(run->metrics.rows.size(), 1u);
    ASSERT_EQ(run->samples.rows.size(), 1u);
    EXPECT_EQ(run->samples.rows[0].number("gpu0/temperature_celsius"), 61);
    const RunStream events = events_in(folder / "run");
    ASSERT_EQ(events.rows.size(), 3u);
    EXPECT_EQ(text_of(events.rows[0], "kind"), "started");
    EXPECT_EQ(text_of(events.rows[1], "kind"), "warning");
    EXPECT_EQ(text_of(events.rows[1], "text"), "the loader is slow");
    EXPECT_EQ(text_of(events.rows[2], "kind"), "finished");
    EXPECT_EQ(run->metrics.skipped + run->samples.skipped + events.skipped, 0u);
    EXPECT_EQ(broken_checkpoints(folder / "run"), 0u);
    EXPECT_EQ(io::load_checkpoint(folder / "run/checkpoints/last")->step, 12u);
}

TEST(ReadRun, MissingAndForeignPiecesAreNoReasonToFail) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(read_run(folder / "absent").ok());
    EXPECT_FALSE(read_run(folder.path()).ok());
    write_text(folder / "manifest.json", R"({"format": 1, "status": "running"})");
    auto run = read_run(folder.path());
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_TRUE(run->was_killed());
    EXPECT_EQ(run->metrics.total + run->samples.total, 0u);
    write_text(folder / "metrics.jsonl", std::string(1000, '\0'));
    run = read_run(folder.path());
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->metrics.skipped, 1u);
    write_text(folder / "manifest.json", R"({"format": 99, "status": "running"})");
    EXPECT_FALSE(read_run(folder.path()).ok());
}

TEST(ReadRun, APipeInPlaceOfAStreamIsAnErrorNotAHang) {
    const test::TemporaryFolder folder;
    write_text(folder / "manifest.json", R"({"format": 1, "status": "running"})");
    ASSERT_EQ(::mkfifo((folder / "samples.jsonl").c_str(), 0600), 0);
    EXPECT_FALSE(read_run(folder.path()).ok());
}

TEST(RunDirectory, FolderWithTheHalfOfAFirstManifestCanBeUsed) {
    const test::TemporaryFolder folder;
    write_text(folder / ".lock", "");
    write_text(folder / ".manifest.json.tmp-123-0", "{\"form");
    const auto run = RunDirectory::open(folder.path(), RunStart::kNew, read_manifest());
    EXPECT_TRUE(run.ok()) << run.error().text();
}

/// What the child does until it is killed: everything a training run writes, as fast as it can.
[[noreturn]] void live(const io::Path& folder) {
    const bool resumed = fs::exists(folder / "manifest.json");
    auto run = RunDirectory::open(folder, resumed ? RunStart::kResume : RunStart::kNew, read_manifest());
    if (!run.ok()) ::_exit(10);
    std::vector<std::unique_ptr<Sink>> sinks;
    auto samples = json_lines_sink(run->samples());
    if (!samples.ok()) ::_exit(11);
    sinks.push_back(std::move(samples).value());
    SinkThread thread(std::move(sinks));
    auto store = io::CheckpointStore::open(run->checkpoints());
    if (!store.ok()) ::_exit(12);
    const std::vector<float> weights(64, 1.0f);
    for (std::int64_t step = 1;; ++step) {
        if (!run->metrics().append({{"kind", "interval"}, {"step", step}, {"loss", 1.0 / static_cast<double>(step)}}).ok())
            ::_exit(13);
        thread.post(row_of(busy_sample(static_cast<std::uint64_t>(step))));
        if (!run->events().append("epoch", "epoch ended", {{"step", step}}).ok()) ::_exit(14);
        if (step % 16 != 0) continue;
        io::Checkpoint checkpoint;
        checkpoint.step = static_cast<std::uint64_t>(step);
        checkpoint.members.push_back({{io::float_tensor("w", {64}, weights)}, {}});
        if (!store->save(checkpoint, step % 32 == 0).ok()) ::_exit(15);
        if (step % 64 == 0 && !run->finish(RunStatus::kInterrupted, 130).ok()) ::_exit(16);
    }
}

TEST(ReadRun, AKilledRunCanBeReadAndResumedWheneverItWasKilled) {
    const test::TemporaryFolder folder;
    const io::Path run_folder = folder / "run";
    std::mt19937 random(20251104);
    constexpr int kLives = 30;
    int killed_before_the_manifest = 0;
    std::uint64_t rows = 0;
    for (int life = 0; life < kLives; ++life) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) live(run_folder);
        std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution<int>(100, 120000)(random)));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the writer gave up with " << WEXITSTATUS(status);
        if (!fs::exists(run_folder / "manifest.json")) {
            ++killed_before_the_manifest;
            continue;
        }
        const auto run = read_run(run_folder);
        ASSERT_TRUE(run.ok()) << run.error().text();
        EXPECT_FALSE(run->being_written);
        const auto lives = static_cast<std::uint64_t>(life + 1);
        EXPECT_LE(run->metrics.skipped, lives) << "at most one torn line per death";
        EXPECT_LE(run->samples.skipped, lives);
        EXPECT_LE(events_in(run_folder).skipped, lives);
        EXPECT_GE(run->metrics.total, rows) << "what was there stays";
        rows = run->metrics.total;
        EXPECT_EQ(broken_checkpoints(run_folder), 0u);
        if (fs::exists(fs::symlink_status(run_folder / "checkpoints/last"))) {
            const auto last = io::load_checkpoint(run_folder / "checkpoints/last");
            EXPECT_TRUE(last.ok()) << last.error().text();
        }
    }
    EXPECT_GT(rows, 0u);
    EXPECT_LT(killed_before_the_manifest, kLives / 2);
}

TEST(EventWriter, ThreadsWriteWholeLinesInTheOrderOfTime) {
    const test::TemporaryFolder folder;
    {
        auto events = EventWriter::open(folder / "events.jsonl");
        ASSERT_TRUE(events.ok());
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&, t] {
                for (int i = 0; i < 100; ++i)
                    EXPECT_TRUE(
                        events->append("loader_spike", "line\nbreak \"quoted\" \xff", {{"thread", std::int64_t{t}}}).ok());
            });
        for (std::thread& thread : threads) thread.join();
        ASSERT_TRUE(events->append("warning", std::string(std::size_t{1} << 21, 'x')).ok());
    }
    const RunStream events = events_in(folder.path());
    EXPECT_EQ(events.skipped, 0u);
    ASSERT_EQ(events.rows.size(), 401u);
    for (std::size_t i = 1; i < events.rows.size(); ++i)
        EXPECT_LE(events.rows[i - 1].number("time"), events.rows[i].number("time"));
    EXPECT_TRUE(text_of(events.rows[0], "text").starts_with("line\nbreak \"quoted\" "));
    EXPECT_EQ(text_of(events.rows[400], "text").size(), 16384u);
}

}  // namespace
}  // namespace millrace::diagnose
