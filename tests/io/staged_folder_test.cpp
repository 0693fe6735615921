#include "io/pending_file.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

TEST(StagedFolder, FilesAppearTogether) {
    const test::TemporaryFolder folder;
    const Path place = folder / "deep/set";
    {
        auto staged = StagedFolder::begin(place);
        ASSERT_TRUE(staged.ok()) << staged.error().text();
        ASSERT_TRUE(write_atomically(staged->inside() / "a", "1").ok());
        ASSERT_TRUE(write_atomically(staged->inside() / "last", "2").ok());
        EXPECT_FALSE(fs::exists(place / "a"));
        EXPECT_FALSE(StagedFolder::begin(place).ok());
        ASSERT_TRUE(staged->publish("last").ok());
    }
    EXPECT_EQ(read_text(place / "a").value(), "1");
    EXPECT_EQ(std::distance(fs::directory_iterator(place), fs::directory_iterator{}), 2);
}

TEST(StagedFolder, WithoutPublishingNothingIsLeft) {
    const test::TemporaryFolder folder;
    for (const bool there : {false, true}) {
        const Path place = folder / "set";
        if (there) fs::create_directory(place);
        {
            auto staged = StagedFolder::begin(place);
            ASSERT_TRUE(staged.ok());
            ASSERT_TRUE(write_atomically(staged->inside() / "a", "1").ok());
        }
        EXPECT_EQ(fs::exists(place), there);
        EXPECT_TRUE(!there || fs::is_empty(place));
    }
}

TEST(StagedFolder, TakenNamesAreRefusedAndKept) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "b", "old").ok());
    {
        auto staged = StagedFolder::begin(folder.path());
        ASSERT_TRUE(staged.ok());
        for (const char* name : {"a", "b"}) ASSERT_TRUE(write_atomically(staged->inside() / name, "new").ok());
        const auto published = staged->publish("b");
        ASSERT_FALSE(published.ok());
        EXPECT_NE(published.error().text().find("b: is there already"), std::string::npos) << published.error().text();
    }
    EXPECT_EQ(read_text(folder / "b").value(), "old");
    EXPECT_FALSE(fs::exists(folder / "a"));
}

TEST(StagedFolder, LeftoversOfAKilledProcessGo) {
    const test::TemporaryFolder folder;
    fs::create_directory(folder / ".building");
    ASSERT_TRUE(write_atomically(folder / ".building/half", "1").ok());
    auto staged = StagedFolder::begin(folder.path());
    ASSERT_TRUE(staged.ok()) << staged.error().text();
    EXPECT_TRUE(fs::is_empty(staged->inside()));
}

TEST(StagedFolder, PublishingThatWasCutShortIsFinished) {
    const test::TemporaryFolder folder;
    fs::create_directory(folder / ".publishing");
    ASSERT_TRUE(write_atomically(folder / "a", "1").ok());
    for (const char* name : {"b", "last"}) ASSERT_TRUE(write_atomically(folder / ".publishing" / name, name).ok());
    {
        const auto working = StagedFolder::begin(folder.path());
        ASSERT_TRUE(StagedFolder::finish_publishing(folder.path(), "last").ok());
        EXPECT_FALSE(fs::exists(folder / "b")) << "another process is at work";
    }
    const auto finished = StagedFolder::finish_publishing(folder.path(), "last");
    ASSERT_TRUE(finished.ok()) << finished.error().text();
    EXPECT_EQ(read_text(folder / "last").value(), "last");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator{}), 3);

    fs::create_directory(folder / ".publishing");
    ASSERT_TRUE(write_atomically(folder / ".publishing/a", "2").ok());
    EXPECT_FALSE(StagedFolder::finish_publishing(folder.path(), "last").ok());
    EXPECT_EQ(read_text(folder / "a").value(), "1");
}

}  // namespace
}  // namespace millrace::io
