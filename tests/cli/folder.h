#pragma once
// A folder with a small data set and a recipe for it, gone after the test.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/child.h"
#include "data/makers.h"

namespace millrace::cli {

class InFolder : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "millrace-cli-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        ASSERT_TRUE(data::make_garments(folder_ / "data", {300, 60, 7}).ok());
        write("recipe.toml", "device = \"cpu\"\n[data]\npath = \"" + path("data") + "\"\n[train]\nepochs = 1\nbatch = 64\n");
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string& below) const { return (folder_ / below).string(); }
    void write(const std::string& below, const std::string& bytes) const {
        std::ofstream(folder_ / below, std::ios::binary) << bytes;
    }

    Said call(const std::vector<std::string>& arguments, const ChildOptions& options = {}) const {
        return run(folder_.string(), arguments, options);
    }
    /// train with more arguments behind the recipe and the run directory `name`.
    std::vector<std::string> train_words(const std::string& name, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> words{"train", path("recipe.toml"), "--out", path(name)};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    Said train(const std::string& name, const std::vector<std::string>& more = {}, const ChildOptions& options = {}) const {
        return call(train_words(name, more), options);
    }
    /// Expects this exit status and a message on stderr that begins as all do and holds `words`.
    static void expect_refusal(const Said& said, const std::vector<std::string>& words, int status = 2) {
        EXPECT_EQ(said.status, status) << said.err;
        EXPECT_EQ(said.err.rfind("millrace: ", 0), 0u) << said.err;
        for (const std::string& word : words)
            EXPECT_NE(said.err.find(word), std::string::npos) << "'" << word << "' is not in: " << said.err;
    }

    std::filesystem::path folder_;
};

}  // namespace millrace::cli
