#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

class MemoryOfARun : public TinyRun {};

TEST_F(MemoryOfARun, OnTheCpuThePlanHasWorkingMemoryAndWhatTheProcessHolds) {
    const auto made = set_up(recipe({}), true, {});
    ASSERT_TRUE(made.ok()) << made.error().text();
    const MemoryNeeds& needs = made->engine->memory_needs();
    EXPECT_GT(needs.scratch, 0) << "packed operands of products";
    EXPECT_GT(needs.held, std::int64_t{kTrain} * 28 * 28) << "the images as they were read";
    EXPECT_GT(needs.passing, 0);
    EXPECT_EQ(needs.peak(), needs.total() + needs.held + needs.passing);
    EXPECT_NE(made->engine->memory_text().find("with the program and its data"), std::string::npos);
}

TEST_F(MemoryOfARun, DataWithoutRoomIsRefusedBeforeItIsRead) {
    const auto whole = std::filesystem::file_size(folder_ / "data/train-images-idx3-ubyte");
    std::filesystem::resize_file(folder_ / "data/train-images-idx3-ubyte", std::uintmax_t{1} << 43);  // a hole
    const auto refused = run("a", {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    for (const char* part : {"data.path", "8.0 TiB of files", "room for"})
        EXPECT_NE(refused.error().text().find(part), std::string::npos) << part << " in: " << refused.error().text();
    std::filesystem::resize_file(folder_ / "data/train-images-idx3-ubyte", whole);
    EXPECT_TRUE(run("a", {"train.steps=1"}).ok());
}

TEST_F(MemoryOfARun, RefusedPlanLeavesNoTrace) {
    const auto refused = run("a", {"train.memory=64KiB"});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    EXPECT_NE(refused.error().text().find("train.memory allows 64.0 KiB"), std::string::npos) << refused.error().text();
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

TEST_F(MemoryOfARun, BatchStatisticsAndDiversityAreNotSplitUnasked) {
    // Parts need a second arena of gradients: it must cost less than the activations that they save.
    const std::vector<std::string> small{"model.preset=debug", "model.diversity_experts=true", "train.batch=240"};
    const auto made = [&](const std::string& setting) {
        std::vector<std::string> settings = small;
        settings.push_back(setting);
        return set_up(recipe(settings), true, {});
    };
    const auto whole = made("train.epochs=1");
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    const auto& couplings = whole->engine->row_couplings();
    const auto has = [&](const char* text) {
        return std::any_of(couplings.begin(), couplings.end(), [&](const std::string& each) { return each.starts_with(text); });
    };
    EXPECT_TRUE(has("batch statistics of "));
    EXPECT_TRUE(has("diversity of cosines"));
    const std::string less = fmt::format("train.memory={}B", whole->engine->memory_needs().total() - 1);
    const auto refused = made(less);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().exit_status, 2);
    for (const char* part : {"not split unasked", "batch statistics of ", "train.micro_batch = 80 (", "smaller train.batch"})
        EXPECT_NE(refused.error().text().find(part), std::string::npos) << part << " in: " << refused.error().text();
}

TEST_F(MemoryOfARun, PlanAndUseAreInTheEvents) {
    ASSERT_TRUE(run("a", {"train.epochs=1"}).ok());
    const std::string events = bytes("a/events.jsonl");
    EXPECT_NE(events.find("\"planned_bytes\":"), std::string::npos) << events;
    EXPECT_NE(events.find("\"used_bytes\":"), std::string::npos) << events;
}

TEST_F(MemoryOfARun, MicroBatchesLeaveEnoughRowsToNormalizeOver) {
    const auto refused = run("a", {"train.micro_batch=1"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("train.micro_batch = 1"), std::string::npos) << refused.error().text();
}

TEST_F(MemoryOfARun, MicroBatchMustDivideTheBatch) {
    const auto refused = run("a", {"train.micro_batch=5"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("does not divide train.batch = 64"), std::string::npos) << refused.error().text();
}

}  // namespace
}  // namespace millrace::train
