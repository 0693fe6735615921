// Runs on streamed images: the same evaluation as of resident ones, how they go on, and when they are chosen.

#include "data/stream/streamed_source.h"
#include "train/killer.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

using data::Part;

/// 394 training images of 792 bytes in windows of at most 80; both other parts have two windows or more.
class StreamedSamplesRun : public TinyRun {
protected:
    [[nodiscard]] static std::vector<std::string> settings(std::vector<std::string> more) {
        std::vector<std::string> all{"data.mode=stream", "data.window=128KiB", "train.batch=32",       "eval.batch=16",
                                     "train.epochs=3",   "optim.lr=1e-3",      "telemetry.interval=0s"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    base::Result<RunResult> go(const std::string& name, std::vector<std::string> more = {}, bool resume = false) {
        return run(name, settings(std::move(more)), resume);
    }
    void expect_equal(const std::string& a, const std::string& b, const std::string& member = "") const {
        for (const char* file : {"model.safetensors", "optimizer.safetensors"})
            EXPECT_EQ(last(a, (member + file).c_str()), last(b, (member + file).c_str())) << file;
    }
};

TEST_F(StreamedSamplesRun, EvaluatesToTheBitAsAResidentSetDoes) {
    const auto streamed = set_up(recipe(settings({})), true), resident = set_up(recipe(settings({"data.mode=resident"})), true);
    ASSERT_TRUE(streamed.ok()) << streamed.error().text();
    ASSERT_TRUE(resident.ok()) << resident.error().text();
    EXPECT_TRUE(streamed->data.streamed);
    EXPECT_EQ(streamed->data.checksum, resident->data.checksum);
    const auto& source = dynamic_cast<const data::StreamedSource&>(streamed->engine->source());
    EXPECT_GT(source.plan(Part::train)->windows(), 4u);
    EXPECT_GT(source.plan(Part::validation)->windows(), 1u);
    EXPECT_LT(streamed->engine->memory_needs().data, (128 << 10) * 3 / 2 + 1024);
    for (const Part part : {Part::validation, Part::test, Part::validation}) {
        const auto a = streamed->engine->evaluate(part), b = resident->engine->evaluate(part);
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_EQ(a->at(0).loss, b->at(0).loss);
        ASSERT_EQ(a->at(0).more.figures.size(), b->at(0).more.figures.size());
        for (std::size_t i = 0; i < a->at(0).more.figures.size(); ++i)
            EXPECT_EQ(a->at(0).more.figures[i].value, b->at(0).more.figures[i].value) << a->at(0).more.figures[i].name;
    }
}

TEST_F(StreamedSamplesRun, ResumesInTheMiddleOfAnEpochToTheBit) {
    for (const std::string members : {"1", "2"}) {
        const std::vector<std::string> more{"members=" + members, "data.augment=true", "train.epochs=2"};
        const std::string whole = "whole" + members, killed = "killed" + members;
        Killer killer(folder_ / whole, folder_ / killed, 17);  // 13 steps per epoch
        TrainRequest request;
        request.out = folder_ / whole;
        request.saves = &killer.saves;
        const auto done = train(recipe(settings(more)), request, {&killer});
        ASSERT_TRUE(done.ok()) << done.error().text();
        const auto resumed = go(killed, more, true);
        ASSERT_TRUE(resumed.ok()) << resumed.error().text();
        EXPECT_EQ(observer_.starts.back().first_step, 17u);
        expect_equal(whole, killed, members == "1" ? "" : "member-001/");
    }
}

TEST_F(StreamedSamplesRun, NumberOfThreadsChangesNothingAndMicroBatchesSeeTheSameRows) {
    ASSERT_TRUE(go("one", {"data.threads=1"}).ok());
    ASSERT_TRUE(go("three", {"data.threads=3"}).ok());
    expect_equal("one", "three");
    ASSERT_TRUE(go("parts", {"train.micro_batch=8", "train.epochs=1"}).ok());
    ASSERT_TRUE(observer_.epochs.back().loader_bytes && observer_.epochs.back().mix_deviation);
    EXPECT_GE(*observer_.epochs.back().loader_bytes, 394u * 792);
}

TEST_F(StreamedSamplesRun, AutoStreamsWhatDoesNotFitAndGoesOnSo) {
    const std::vector<std::string> more{"data.window=64KiB", "train.batch=16", "data.mode=auto", "train.epochs=1"};
    const auto probe = set_up(recipe(settings({"data.window=64KiB", "train.batch=16", "data.mode=resident"})), true);
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    const MemoryNeeds needs = probe->engine->memory_needs();
    const auto with = [&](std::int64_t memory) {
        std::vector<std::string> all = more;
        all.push_back("train.memory=" + std::to_string(memory) + "B");
        return all;
    };
    ASSERT_TRUE(go("fits", with(needs.total() + 4096)).ok());
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("resident (")) << observer_.starts.back().loading;
    const auto tight = go("tight", with(needs.total() - needs.data + 110'000));
    ASSERT_TRUE(tight.ok()) << tight.error().text();
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("streamed (the set and the model do not fit"))
        << observer_.starts.back().loading;
    ASSERT_TRUE(go("tight", {"data.window=64KiB", "train.batch=16", "data.mode=auto", "train.epochs=2"}, true).ok());
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("streamed (as the run was started)"));
    const auto refused = go("tight", {"data.window=64KiB", "train.batch=16", "data.mode=resident", "train.epochs=3"}, true);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("streamed data"), std::string::npos) << refused.error().text();
}

TEST_F(StreamedSamplesRun, WhatCannotBeStreamedIsRefused) {
    for (const auto& [set, word] : {std::pair("train.batch=300", "a step takes 300 rows"), {"data.window=1KiB", "data.window"}}) {
        const auto refused = go("a", {set});
        ASSERT_FALSE(refused.ok()) << set;
        EXPECT_EQ(refused.error().exit_status, 2);
        EXPECT_NE(refused.error().text().find(word), std::string::npos) << refused.error().text();
    }
}

}  // namespace
}  // namespace millrace::train
