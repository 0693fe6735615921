#pragma once
// A folder of runs as processes leave them, gone after the test.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace millrace::ui::made_up {

namespace fs = std::filesystem;

inline std::string manifest(const std::string& status = "finished", const std::string& more = "", double lr = 0.001) {
    return fmt::format(
        R"({{"format": 1, "millrace": "0.1.0", "status": "{}", "command": ["millrace", "train", "x.toml"], "device": "cpu: 2 threads",
"started": "2025-11-04T12:00:00Z"{}, "recipe": {{"model": {{"name": "collective", "preset": "debug"}}, "data": {{"path": "data/garments"}},
"train": {{"epochs": 4, "batch": 128}}, "optim": {{"lr": {}}}, "checkpoint": {{"best_metric": "validation_accuracy"}}}}}})",
        status, more, lr);
}

inline std::string epoch_row(int epoch, double loss, double accuracy, bool best = true, double seconds = -1) {
    return fmt::format(
        R"({{"kind": "epoch", "time": 1.5, "seconds": {}, "step": {}, "epoch": {}, "train_loss": {}, "validation_loss": {}, "validation_accuracy": {}, "member_000/validation_loss": 1, "best": {}}})"
        "\n",
        seconds < 0 ? epoch * 2.0 : seconds, epoch * 100, epoch, loss * 0.9, loss, accuracy, best);
}

inline std::string interval_row(int step, double seconds) {
    return fmt::format(R"({{"kind": "interval", "time": 1.5, "seconds": {}, "step": {}, "epoch": 1, "loss": 0.5, "lr": 0.001}})"
                       "\n",
                       seconds, step);
}

class InRuns : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "millrace-ui-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        outside_ = pattern;
        folder_ = outside_ / "runs";
        fs::create_directory(folder_);
    }
    void TearDown() override { fs::remove_all(outside_); }

    void write(const std::string& name, const std::string& bytes, bool append = false) const {
        fs::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name, append ? std::ios::binary | std::ios::app : std::ios::binary) << bytes;
    }
    void write_run(const std::string& name, const std::string& rows, const std::string& text = manifest()) const {
        write(name + "/manifest.json", text);
        write(name + "/metrics.jsonl", rows);
    }

    fs::path outside_, folder_;
};

}  // namespace millrace::ui::made_up
