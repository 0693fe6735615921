#include "io/held_folder.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

TEST(KeptFolder, PathFollowsTheFolderAndNotItsName) {
    const test::TemporaryFolder folder;
    fs::create_directory(folder / "a");
    const auto held = KeptFolder::open(folder / "a");
    ASSERT_TRUE(held.ok()) << held.error().text();
    EXPECT_EQ(held->name(), folder / "a");
    fs::rename(folder / "a", folder / "b");
    fs::create_directory(folder / "a");
    ASSERT_TRUE(write_atomically(held->path() / "file", "text").ok());
    EXPECT_TRUE(fs::exists(folder / "b/file"));
    EXPECT_TRUE(fs::is_empty(folder / "a"));
    EXPECT_EQ(held->name(), fs::canonical(folder / "b"));
    EXPECT_FALSE(held->was_removed());
    fs::remove_all(folder / "b");
    EXPECT_TRUE(held->was_removed());
    EXPECT_FALSE(write_atomically(held->path() / "file", "text").ok());
    EXPECT_TRUE(fs::is_empty(folder / "a"));
}

TEST(KeptFolder, ErrorsSayTheNameThatPeopleKnow) {
    const test::TemporaryFolder folder;
    const auto held = KeptFolder::open(folder.path(), "runs/mine");
    ASSERT_TRUE(held.ok());
    const std::string name = held->name().string();
    const Error error = held->named(Error{"outer", held->path() / "x", 1}.because(Error{"inner", held->path().string() + "0/y"}));
    EXPECT_EQ(error.text(), name + "/x: outer\n  because " + held->path().string() + "0/y: inner");
    EXPECT_EQ(error.exit_status, 1);
    EXPECT_EQ(held->named(Error{"whole", held->path()}).place, name);
}

TEST(KeptFolder, HasOneLockUnderAllItsNames) {
    const test::TemporaryFolder folder;
    fs::create_directory(folder / "a");
    fs::create_directory_symlink("a", folder / "link");
    auto first = KeptFolder::open(folder / "a"), second = KeptFolder::open(folder / "link");
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_TRUE(first->try_lock().value());
    EXPECT_FALSE(second->try_lock().value());
    EXPECT_TRUE(is_locked(folder / "a"));
    { const auto gone = std::move(first); }
    EXPECT_TRUE(second->try_lock().value());
}

TEST(KeptFolder, MustBeAFolder) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "file", "text").ok());
    EXPECT_FALSE(KeptFolder::open(folder / "file").ok());
    EXPECT_FALSE(KeptFolder::open(folder / "missing").ok());
}

}  // namespace
}  // namespace millrace::io
