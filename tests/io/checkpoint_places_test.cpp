// Where checkpoints are written: a disk without room, and folders that were moved or replaced.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/checkpoint_content.h"
#include "small_disk.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointPlace, FullDiskLosesTheOldestAndKeepsTheBestAndTheNewest) {
    const test::SmallDisk disk(400u << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    auto store = CheckpointStore::open(disk.path() / "c", {100, 0});
    for (std::uint64_t step = 1; step <= 12; ++step) {  // 60 kB and three blocks of rounding each: five have room
        const auto saved = store->save(Content(step, 1, 5000).checkpoint, step == 2);
        ASSERT_TRUE(saved.ok()) << step << ": " << saved.error().text();
    }
    const std::vector<std::string> names = names_in(disk.path() / "c");
    EXPECT_GE(names.size(), 5u) << "no more than needed goes";
    EXPECT_EQ(std::ranges::count(names, "step-00000002"), 1) << "the best";
    EXPECT_EQ(names.back(), "step-00000012");
    EXPECT_EQ(std::ranges::count(names, "step-00000001"), 0);
    EXPECT_EQ(std::ranges::count(names, "step-00000011"), 1) << "the newer ones stay";
    expect_step(*load_checkpoint(disk.path() / "c/best"), 2, 1, 5000);
    expect_step(*load_checkpoint(disk.path() / "c/last"), 12, 1, 5000);
}

TEST(CheckpointPlace, FullDiskHasRoomForTheBestOfEachMember) {
    // Of disks that differ by a block some are full when the checkpoint is written and some when its best is gathered.
    for (std::size_t kilobytes = 400; kilobytes < 520; kilobytes += 4) {
        const test::SmallDisk disk(kilobytes << 10);
        if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
        auto store = CheckpointStore::open(disk.path() / "c", {100, 0});
        for (std::uint64_t step = 1; step <= 6; ++step) {
            Content content(step, 2, 2500);
            if (step > 1) content.checkpoint.keeps_best = {true, false};
            const auto saved = store->save(content.checkpoint, true);
            ASSERT_TRUE(saved.ok()) << kilobytes << " kB, step " << step << ": " << saved.error().text();
        }
        expect_step(*load_checkpoint(disk.path() / "c/last"), 6, 2, 2500);
        EXPECT_TRUE(load_checkpoint(disk.path() / "c/best").ok());
    }
}

TEST(CheckpointPlace, FullDiskWithNothingToDropFails) {
    const test::SmallDisk disk(150u << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    auto store = CheckpointStore::open(disk.path() / "c", {100, 0});
    ASSERT_TRUE(store->save(Content(1, 1, 5000).checkpoint, true).ok());
    ASSERT_TRUE(store->save(Content(2, 1, 5000).checkpoint).ok());
    const auto failed = store->save(Content(3, 1, 5000).checkpoint);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().exit_status, 1);
    EXPECT_EQ(names_in(disk.path() / "c"), (std::vector<std::string>{"best", "last", "step-00000001", "step-00000002"}));
}

TEST(CheckpointPlace, MovedFolderIsWrittenWhereItIsAndItsPlaceIsLeftAlone) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {1, 0});
    ASSERT_TRUE(store->save(Content(1).checkpoint).ok());
    fs::rename(folder / "c", folder / "moved");
    auto other = CheckpointStore::open(folder / "c");
    ASSERT_TRUE(other->save(Content(7).checkpoint).ok());
    const std::vector<std::string> before = names_in(folder / "c");
    for (std::uint64_t step = 2; step < 5; ++step) {
        const auto saved = store->save(Content(step).checkpoint, true);
        ASSERT_TRUE(saved.ok()) << saved.error().text();
        EXPECT_EQ(fs::weakly_canonical(saved->folder).parent_path(), fs::canonical(folder / "moved"));
    }
    EXPECT_EQ(names_in(folder / "c"), before);
    expect_step(*load_checkpoint(folder / "moved/last"), 4, 1);
    expect_step(*load_checkpoint(folder / "c/last"), 7, 1);
}

TEST(CheckpointPlace, LinkInTheFoldersPlaceLeadsToNothingThatIsTouched) {
    const test::TemporaryFolder folder;
    auto store = CheckpointStore::open(folder / "c", {1, 0});
    ASSERT_TRUE(store->save(Content(3).checkpoint).ok());
    fs::create_directories(folder / "precious/step-00000001");
    fs::rename(folder / "c", folder / "moved");
    fs::create_directory_symlink("precious", folder / "c");
    ASSERT_TRUE(store->save(Content(4).checkpoint).ok());
    EXPECT_EQ(names_in(folder / "precious"), std::vector<std::string>{"step-00000001"});
    expect_step(*load_checkpoint(folder / "moved/last"), 4, 1);
}

}  // namespace
}  // namespace millrace::io
