#pragma once
// A data set of a few hundred garments and runs on it, in a folder that goes away with the test.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "data/makers.h"
#include "train/recipe_keys.h"
#include "train/trainer.h"

namespace millrace::train {

class TinyRun : public ::testing::Test {
protected:
    static constexpr std::uint32_t kTrain = 437, kTest = 101;  // odd, so that every pass has a tail

    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "millrace-train-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        ASSERT_TRUE(data::make_garments(folder_ / "data", {kTrain, kTest, 7}).ok());
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    /// A recipe on the tiny data with `settings` on top ("key=value"), which replace the defaults below.
    base::Recipe recipe(std::vector<std::string> settings) const {
        const std::string text = "device = \"cpu\"\nthreads = 2\n[data]\npath = \"" + (folder_ / "data").string() +
                                 "\"\n[train]\nepochs = 2\nbatch = 64\n[eval]\nbatch = 40\n";
        auto parsed = parse_recipe(text, "tiny.toml", {std::move(settings), {}});
        EXPECT_TRUE(parsed.ok()) << parsed.error().text();
        return std::move(parsed).value();
    }

    base::Result<RunResult> run(const std::string& name, std::vector<std::string> settings, bool resume = false,
                                const std::atomic<int>* stop = nullptr) {
        TrainRequest request;
        request.out = folder_ / name;
        request.resume = resume;
        request.command = {"test"};
        request.stop = stop;
        return train(recipe(std::move(settings)), request, {&observer_});
    }

    std::string bytes(const std::string& below) const {
        std::ifstream in(folder_ / below, std::ios::binary);
        EXPECT_TRUE(in.good()) << below;
        std::ostringstream text;
        text << in.rdbuf();
        return text.str();
    }
    /// The weights or the optimizer's state of a checkpoint.
    std::string last(const std::string& name, const char* file = "model.safetensors") const {
        return bytes(name + "/checkpoints/last/" + file);
    }

    /// Keeps what a run reported.
    struct Notes final : Listener {
        std::vector<EpochReport> epochs;
        std::vector<StartReport> starts;
        void on_start(const StartReport& report) override { starts.push_back(report); }
        base::Status on_epoch(EpochReport& report) override {
            epochs.push_back(report);
            return base::ok();
        }
    };

    std::filesystem::path folder_;
    Notes observer_;
};

}  // namespace millrace::train
