#include "io/recipe_file.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

TEST(RecipeFile, FilesThatAreNoRecipesAreRefused) {
    const auto missing = read_recipe_file("/nonexistent/r.toml");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().place, "/nonexistent/r.toml");
    EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
    const test::TemporaryFolder folder;
    const auto directory = read_recipe_file(folder.path());
    ASSERT_FALSE(directory.ok());
    EXPECT_NE(directory.error().message.find("cannot read"), std::string::npos);
    const Path path = folder / "r.toml";
    ASSERT_TRUE(write_atomically(path, "[train]\nepochs = 3\n").ok());
    EXPECT_EQ(read_recipe_file(path).value(), "[train]\nepochs = 3\n");
    ASSERT_TRUE(write_atomically(path, std::string((1 << 20) + 1, '#')).ok());
    const auto large = read_recipe_file(path);
    ASSERT_FALSE(large.ok());
    EXPECT_NE(large.error().message.find("larger than 1 MiB"), std::string::npos);
}

}  // namespace
}  // namespace millrace::io
