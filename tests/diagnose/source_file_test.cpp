#include "diagnose/reading/source_file.h"

#include <gtest/gtest.h>

#include <chrono>

#include "temporary_folder.h"

namespace millrace::diagnose {
namespace {

TEST(SourceFile, OnlyRegularFilesOfSourcesAreOpened) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(io::write_atomically(folder / "a.py", std::string_view("text")).ok());
    ASSERT_TRUE(io::write_atomically(folder / "a.txt", std::string_view("text")).ok());
    std::filesystem::create_directory(folder / "b.py");
    EXPECT_EQ(read_source(folder / "a.py"), "text");
    EXPECT_FALSE(read_source(folder / "a.txt"));
    EXPECT_FALSE(read_source(folder / "b.py"));
    EXPECT_FALSE(read_source(folder / "c.py"));
    EXPECT_FALSE(read_source((folder / "a.txt").string() + std::string("\0.py", 4)));
    std::filesystem::resize_file(folder / "a.py", (std::size_t{4} << 20) + 1);
    EXPECT_FALSE(read_source(folder / "a.py"));
}

TEST(SourceFile, BesideTheTraceComesBeforeTheNameItself) {
    const test::TemporaryFolder folder;
    for (const char* name : {"trace.json", "a.py", "b.py"})
        ASSERT_TRUE(io::write_atomically(folder / name, std::string_view(name)).ok());
    const auto made = std::filesystem::last_write_time(folder / "trace.json");
    std::filesystem::last_write_time(folder / "a.py", made);
    std::filesystem::last_write_time(folder / "b.py", made + std::chrono::seconds(1));
    const FindSources find = sources_of(folder / "trace.json");
    ASSERT_EQ(find("a.py").size(), 1u);
    EXPECT_EQ(find("a.py")[0].text, "a.py");
    EXPECT_FALSE(find("a.py")[0].changed);
    EXPECT_EQ(find("a.py")[0].path, (folder / "a.py").string());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    ASSERT_TRUE(find("a.py")[0].written);
    EXPECT_NEAR(static_cast<double>(*find("a.py")[0].written) * 1e-9, std::chrono::duration<double>(now).count(), 3600);
    ASSERT_EQ(find((folder / "b.py").string()).size(), 1u);
    EXPECT_TRUE(find("b.py")[0].changed);
    EXPECT_TRUE(find("c.py").empty());
    const auto here = std::filesystem::relative(folder / "a.py");
    EXPECT_EQ(find(here.string()).at(0).text, "a.py");
    EXPECT_FALSE(sources_of(folder / "missing.json"));
    // One of the same name where the program was started.
    std::filesystem::create_directory(folder / "elsewhere");
    ASSERT_TRUE(io::write_atomically(folder / "elsewhere/a.py", std::string_view("another")).ok());
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder / "elsewhere");
    const auto both = find("a.py");
    std::filesystem::current_path(before);
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].text, "a.py");
    EXPECT_EQ(both[1].text, "another");
}

}  // namespace
}  // namespace millrace::diagnose
