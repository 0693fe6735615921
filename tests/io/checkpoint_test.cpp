#include "io/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>

#include "io/checkpoint_content.h"
#include "io/packing.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

TEST(Checkpoint, SavedOneLoads) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store.ok());
    const auto report = store->save(Content(7).checkpoint, true);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_TRUE(fs::is_regular_file(folder / "c/last/model.safetensors"));
    EXPECT_TRUE(fs::is_regular_file(folder / "c/best/optimizer.safetensors"));
    EXPECT_TRUE(fs::read_symlink(folder / "c/last").is_relative());
    for (const char* name : {"c/last", "c/best", "c/step-00000007"}) {
        const auto loaded = load_checkpoint(folder / name);
        ASSERT_TRUE(loaded.ok()) << loaded.error().text();
        expect_step(*loaded, 7, 1);
    }
    EXPECT_FALSE(load_checkpoint(folder / "c/last", LoadParts::kModelOnly)->members[0].optimizer.has_value());
}

TEST(Checkpoint, MembersHaveFoldersOfTheirOwn) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(3, 3).checkpoint).ok());
    EXPECT_TRUE(fs::is_regular_file(folder / "c/last/member-002/model.safetensors"));
    expect_step(*load_checkpoint(folder / "c/last"), 3, 3);
    EXPECT_FALSE(fs::exists(folder / "c/best"));
}

TEST(Checkpoint, CompressedOptimizerLoads) {
    if (!have_zstd()) GTEST_SKIP() << "built without zstd";
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    Content content(4, 2, 50'000);
    content.checkpoint.compress_optimizer = true;
    ASSERT_TRUE(store->save(content.checkpoint).ok());
    EXPECT_LT(fs::file_size(folder / "c/last/member-001/optimizer.safetensors.zst"), 100'000u);
    expect_step(*load_checkpoint(folder / "c/last"), 4, 2, 50'000);
}

TEST(Checkpoint, OldOnesGoByNumberButNeverLastOrBest) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {2, 0});
    for (std::uint64_t step = 1; step <= 6; ++step) ASSERT_TRUE(store->save(Content(step).checkpoint, step == 2).ok());
    EXPECT_EQ(names_in(folder / "c"),
              (std::vector<std::string>{"best", "last", "step-00000002", "step-00000005", "step-00000006"}));
    expect_step(*load_checkpoint(folder / "c/best"), 2, 1);
    expect_step(*load_checkpoint(folder / "c/last"), 6, 1);
}

TEST(Checkpoint, LaterOnesThatAResumePassedOverPushNoWholeOneOut) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {1, 0});
    ASSERT_TRUE(store->save(Content(5).checkpoint).ok());
    std::filesystem::create_directory(folder / "c/step-00000009");
    ASSERT_TRUE(store->save(Content(7).checkpoint, false, CheckpointKind::kTimed).ok());
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000005", "step-00000009", "timed-00000007"}));
}

TEST(Checkpoint, OldOnesGoByBytes) {
    const test::TemporaryFolder folder;
    auto probe = CheckpointStore::open(folder / "p");
    const std::uint64_t each = probe->save(Content(1).checkpoint)->bytes;
    auto store = CheckpointStore::open(folder / "c", {100, each * 5 / 2});
    for (std::uint64_t step = 1; step <= 4; ++step) {
        const auto report = store->save(Content(step).checkpoint);
        EXPECT_LE(report->total_bytes, each * 5 / 2);
    }
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000003", "step-00000004"}));
    auto tight = CheckpointStore::open(folder / "c", {100, 1});
    ASSERT_TRUE(tight->save(Content(5).checkpoint).ok());
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000005"}));
}

/// The step whose weights each member of `best` has.
std::vector<int> best_steps(const Path& root) {
    const auto loaded = load_checkpoint(root / "best");
    EXPECT_TRUE(loaded.ok()) << loaded.error().text();
    std::vector<int> steps;
    for (std::size_t k = 0; loaded.ok() && k < loaded->members.size(); ++k) {
        std::vector<float> w(300);
        EXPECT_TRUE(loaded->members[k].model.copy_floats("w", std::vector{std::int64_t{300}}, w).ok());
        steps.push_back(static_cast<int>(w[0] - static_cast<float>(k)) / 10);
    }
    return steps;
}

TEST(Checkpoint, TheBestOfEachMemberOutlivesTheCheckpointItCameWith) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {1, 0});
    const auto save = [&](std::uint64_t step, std::vector<bool> keeps) {
        Content content(step, 3);
        content.checkpoint.keeps_best = std::move(keeps);
        const auto report = store->save(content.checkpoint, true);
        EXPECT_TRUE(report.ok()) << report.error().text();
        expect_step(*load_checkpoint(folder / "c/last"), step, 3);
        return report.ok() ? report->total_bytes : 0;
    };
    const std::uint64_t one = save(1, {false, false, false});
    EXPECT_EQ(best_steps(folder / "c"), (std::vector{1, 1, 1}));
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"best", "last", "step-00000001"}));
    save(2, {true, false, true});
    EXPECT_EQ(best_steps(folder / "c"), (std::vector{1, 2, 1}));
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"best", "best-00000002", "last", "step-00000002"}));
    const std::uint64_t two = save(3, {false, true, true});
    EXPECT_EQ(best_steps(folder / "c"), (std::vector{3, 2, 1}));
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"best", "best-00000003", "last", "step-00000003"}));
    const std::uint64_t model = fs::file_size(folder / "c/best/member-000/model.safetensors");
    EXPECT_LT(two, one + 2 * model + 4000)
        << "two models and a state are more than one checkpoint: a file that best shares is one";
    save(4, {});
    EXPECT_EQ(best_steps(folder / "c"), (std::vector{4, 4, 4}));
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"best", "last", "step-00000004"}));
}

TEST(Checkpoint, ABestThatIsGoneCannotBeKept) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(1, 2).checkpoint).ok());
    Content content(2, 2);
    content.checkpoint.keeps_best = {true, false};
    const auto refused = store->save(content.checkpoint, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("no best weights to keep"), std::string::npos) << refused.error().text();
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000001"}));
    expect_step(*load_checkpoint(folder / "c/last"), 1, 2);
}

TEST(Checkpoint, TimedOnesReplaceEachOtherAndCountTowardsNoKeep) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {2, 0});
    const auto save = [&](std::uint64_t step, CheckpointKind kind) {
        ASSERT_TRUE(store->save(Content(step).checkpoint, false, kind).ok());
        expect_step(*load_checkpoint(folder / "c/last"), step, 1);
    };
    save(10, CheckpointKind::kStep);
    save(20, CheckpointKind::kStep);
    save(23, CheckpointKind::kTimed);
    save(26, CheckpointKind::kTimed);
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000010", "step-00000020", "timed-00000026"}));
    EXPECT_EQ(*checkpoint_folders(folder / "c"),
              (std::vector<Path>{folder / "c/timed-00000026", folder / "c/step-00000020", folder / "c/step-00000010"}));
    save(30, CheckpointKind::kStep);
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"last", "step-00000020", "step-00000030"}));
}

TEST(Checkpoint, RemovedFolderIsMadeAgain) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(1).checkpoint).ok());
    fs::remove_all(folder / "c");
    ASSERT_TRUE(store->save(Content(2).checkpoint).ok());
    expect_step(*load_checkpoint(folder / "c/last"), 2, 1);
}

TEST(Checkpoint, FailureClaimsNoCheckpointsThatAreNotThere) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "run/c");
    ASSERT_TRUE(store->save(Content(1).checkpoint).ok());
    fs::remove_all(folder / "run");
    const auto failed = store->save(Content(2).checkpoint);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().text().find("untouched"), std::string::npos) << failed.error().text();
}

TEST(Checkpoint, SameStepTwiceReplacesTheFirst) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(5, 1).checkpoint).ok());
    ASSERT_TRUE(store->save(Content(5, 2).checkpoint).ok());
    expect_step(*load_checkpoint(folder / "c/last"), 5, 2);
    ASSERT_TRUE(store->save(Content(5, 3).checkpoint).ok());
    expect_step(*load_checkpoint(folder / "c/last"), 5, 3);
    EXPECT_EQ(names_in(folder / "c").size(), 2u);
}

TEST(Checkpoint, LeftoversOfInterruptedSavesAreCleaned) {
    const test::TemporaryFolder folder;
    fs::create_directories(folder / "c/.tmp-step-00000001-999/member-000");
    ASSERT_TRUE(write_atomically(folder / "c/.tmp-step-00000001-999/model.safetensors", "half").ok());
    fs::create_symlink("nowhere", folder / "c/.tmp-last-999");
    ASSERT_TRUE(CheckpointStore::open(folder / "c").ok());
    EXPECT_TRUE(names_in(folder / "c").empty());
}

TEST(Checkpoint, DamageIsFoundAndNamed) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(1).checkpoint).ok());
    const Path model = folder / "c/step-00000001/model.safetensors";
    auto bytes = *read_file(model);
    bytes[bytes.size() - 1] ^= std::byte{1};
    ASSERT_TRUE(write_atomically(model, bytes).ok());
    auto loaded = load_checkpoint(folder / "c/last");
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.error().text().find("model.safetensors: does not have the checksum"), std::string::npos)
        << loaded.error().text();
    bytes.pop_back();
    ASSERT_TRUE(write_atomically(model, bytes).ok());
    EXPECT_NE(load_checkpoint(folder / "c/last").error().text().find("truncated"), std::string::npos);
    fs::remove(model);
    EXPECT_FALSE(load_checkpoint(folder / "c/last").ok());
    for (
        const char* text :
        {"", "{}", R"({"checkpoint": 1})", R"({"checkpoint": {"format": 1, "step": 1, "members": 99999, "files": []}})",
         R"({"checkpoint": {"format": 1, "step": 1, "members": 1, "files": []}})",
         R"({"checkpoint": {"format": 1, "step": 1, "members": 1, "files": [{"path": "model.safetensors", "bytes": 1, "checksum": "zz"}]}})",
         R"({"checkpoint": {"format": 1, "step": -1, "members": 1, "files": [{}]}})"}) {
        ASSERT_TRUE(write_atomically(folder / "c/step-00000001/state.json", text).ok());
        EXPECT_FALSE(load_checkpoint(folder / "c/last").ok()) << text;
    }
    EXPECT_FALSE(load_checkpoint(folder / "c/best").ok());
}

TEST(Checkpoint, BadStateIsRefused) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    Content content(1);
    for (const char* state : {"", "[]", R"({"checkpoint": 1})"}) {
        content.checkpoint.state = state;
        EXPECT_FALSE(store->save(content.checkpoint).ok());
        EXPECT_TRUE(names_in(folder / "c").empty());
    }
}

TEST(Checkpoint, FullDiskLeavesTheOldOnes) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(store->save(Content(1).checkpoint, true).ok());
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit bound{2000, 2000};  // the weights fit, the optimizer does not
        ::setrlimit(RLIMIT_FSIZE, &bound);
        const auto result = store->save(Content(2).checkpoint, true);
        const std::string text = result.ok() ? "" : result.error().text();
        ::_exit(text.find("disk is full") != std::string::npos && text.find("untouched") != std::string::npos &&
                        result.error().exit_status == 1
                    ? 0
                    : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(names_in(folder / "c"), (std::vector<std::string>{"best", "last", "step-00000001"}));
    expect_step(*load_checkpoint(folder / "c/last"), 1, 1);
}

/// Saves step after step until it is killed.
[[noreturn]] void save_forever(const Path& checkpoints, std::uint64_t step) {
    auto store = CheckpointStore::open(checkpoints, {2, 0});
    for (; store.ok(); ++step)
        if (!store->save(Content(step, 2).checkpoint, step % 3 == 0).ok()) break;
    ::_exit(1);
}

/// Where syncing costs little, so that a few seconds hold many saves.
Path fast_folder() { return fs::is_directory("/dev/shm") ? Path("/dev/shm") : fs::temp_directory_path(); }

TEST(Checkpoint, KilledSaversAlwaysLeaveACompleteLast) {
    using Clock = std::chrono::steady_clock;
    const test::TemporaryFolder folder(fast_folder());
    const auto start = Clock::now();
    ASSERT_TRUE(CheckpointStore::open(folder / "c")->save(Content(1, 2).checkpoint, true).ok());
    const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    std::mt19937 random(3);
    std::uniform_int_distribution<std::int64_t> until_death(1, 1000 + 4 * one_save);
    const auto deadline = start + std::chrono::seconds(4);
    std::uint64_t step = 1;
    int kills = 0;
    for (; Clock::now() < deadline && kills < 500; ++kills) {
        const pid_t child = ::fork();
        if (child == 0) save_forever(folder / "c", step + 1);
        ::usleep(static_cast<useconds_t>(until_death(random)));  // the moment of death is the point of this test
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the saver stopped by itself";
        for (const char* name : {"c/last", "c/best"}) {
            const auto loaded = load_checkpoint(folder / name);
            ASSERT_TRUE(loaded.ok()) << loaded.error().text();
            expect_step(*loaded, loaded->step, 2);
            if (std::string_view(name) == "c/last") {
                EXPECT_GE(loaded->step, step);
                step = loaded->step;
            }
        }
    }
    EXPECT_GT(kills, 5);
    EXPECT_GT(step, 1u);
    RecordProperty("kills", kills);
    RecordProperty("last_step", static_cast<int>(step));
}

TEST(Checkpoint, ReaderBesideAWriterSeesWholeCheckpoints) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(CheckpointStore::open(folder / "c")->save(Content(1, 2).checkpoint, true).ok());
    const pid_t child = ::fork();
    if (child == 0) save_forever(folder / "c", 2);
    for (int round = 0; round < 50; ++round) {
        const auto loaded = load_checkpoint(folder / "c/last");
        EXPECT_TRUE(loaded.ok()) << loaded.error().text();
        if (loaded.ok()) expect_step(*loaded, loaded->step, 2);
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
}

}  // namespace
}  // namespace millrace::io
