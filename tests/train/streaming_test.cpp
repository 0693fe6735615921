// Runs on streamed recordings: the weights they give, how they resume, in how much memory, and what they refuse.

#include <cstring>

#include "data/load.h"
#include "data/recording_files.h"
#include "data/recordings/recording_set.h"
#include "data/recordings/resident_recordings.h"
#include "record/metrics.h"
#include "tape/record.h"
#include "train/killer.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

namespace fs = std::filesystem;
using data::Part;
using data::testing::RecordingFileSpec;

/// 59 recordings of 6 windows of 8 features, 354 rows of 20 bytes. A window of 12 KiB holds about 300 of them.
class StreamingRun : public TinyRun {
protected:
    void SetUp() override {
        if (!io::have_hdf5()) GTEST_SKIP() << "built without HDF5";
        TinyRun::SetUp();
        spec_.labels = data::testing::mixed_labels(59);
        spec_.width = 8;
        spec_.statistics = false;
        data::testing::write_recording_folder(folder_ / "recordings", spec_, 11, 7);
    }
    [[nodiscard]] std::vector<std::string> settings(std::vector<std::string> more) const {
        std::vector<std::string> all{
            "model.name=leak_cnn",  "model.preset=debug", "data.path=" + (folder_ / "recordings").string(),
            "data.mode=stream",     "data.window=4KiB",   "train.batch=32",
            "optim.lr=0.01",        "train.epochs=3",     "data.mask=2",
            "telemetry.interval=0s"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    base::Result<RunResult> go(const std::string& name, std::vector<std::string> more = {}, bool resume = false) {
        return run(name, settings(std::move(more)), resume);
    }
    void expect_equal(const std::string& a, const std::string& b) const {
        std::size_t compared = 0;
        const fs::path newest = folder_ / a / "checkpoints" / "last";
        for (const auto& entry : fs::recursive_directory_iterator(fs::canonical(newest))) {  // members have folders of their own
            if (entry.path().extension() != ".safetensors") continue;
            const std::string name = fs::relative(entry.path(), newest).string();
            EXPECT_EQ(last(a, name.c_str()), last(b, name.c_str())) << name;
            compared += 1;
        }
        EXPECT_GE(compared, 2u) << "weights and the optimizer's state";
    }
    void expect_refusal(const base::Result<RunResult>& result, const std::vector<std::string>& words) const {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().exit_status, 2);
        for (const std::string& word : words)
            EXPECT_NE(result.error().text().find(word), std::string::npos) << result.error().text();
    }
    RecordingFileSpec spec_;
};

/// The whole set in device memory, in an order that the host writes down before each epoch.
class HostOrdered final : public data::BatchSource {
public:
    HostOrdered(std::unique_ptr<data::BatchSource> inner, const fs::path& folder, std::uint64_t seed, std::int32_t mask)
        : inner_(std::move(inner)), set_(data::load_recording_set(folder, {}).value()), seed_(seed), mask_(mask) {
        plan_ = *dynamic_cast<data::StreamedSource&>(*inner_).plan(Part::train);
    }
    [[nodiscard]] std::int32_t samples(Part part) const override { return inner_->samples(part); }
    [[nodiscard]] const data::Fields& fields() const override { return inner_->fields(); }
    base::Status declare(tape::Store& store) override {
        store_ = &store;
        const auto rows = static_cast<std::int32_t>(plan_.rows);
        from_.features = store.add_data("features", tensor::DType::f16, rows, set_.width);
        from_.labels = store.add_data("labels", tensor::DType::i32, set_.part(Part::train).count, 1);
        from_.order = store.add_data("order", tensor::DType::i32, rows, 1);
        scaling_.declare(store, set_.width);
        from_.mean = scaling_.mean;
        from_.inverse = scaling_.inverse;
        return inner_->declare(store);
    }
    base::Status upload(tape::Store& store) override {
        const data::Recordings& train = set_.part(Part::train);
        store.write(from_.features, train.features.data(), train.features.size() * sizeof(train.features[0]));
        store.write(from_.labels, train.labels.data(), train.labels.size() * sizeof(train.labels[0]));
        scaling_.upload(store, *set_.scaling);
        return inner_->upload(store);
    }
    base::Status await_rows(const data::RowsAhead& rows, const data::StepsDone& done) override {
        if (rows.part != Part::train) return inner_->await_rows(rows, done);
        if (rows.first != 0) return base::ok();
        ops::GatherFeaturesParams params;
        params.samples = plan_.rows;
        params.window = plan_.window_rows();
        std::vector<std::int32_t> order;
        for (std::uint32_t q = 0; q < plan_.rows; ++q) {
            const std::uint32_t at = ops::window_row(params, seed_, rows.epoch, q) % plan_.window_rows();
            const std::uint32_t block = plan_.blocks_of(rows.epoch, q / plan_.window_rows()).at(at / plan_.block_rows);
            order.push_back(static_cast<std::int32_t>(block * plan_.block_rows + at % plan_.block_rows));
        }
        store_->write(from_.order, order.data(), order.size() * sizeof(order[0]));
        return base::ok();
    }
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const data::Wanted> fields) override {
        if (part != Part::train) return inner_->gather(builder, part, rows, fields);
        ops::GatherFeaturesParams params;
        params.samples = plan_.rows;
        params.op_number = builder.next_op_number();
        params.shuffle = false;
        params.rows_per_label = static_cast<std::uint32_t>(set_.windows);
        params.mask = static_cast<std::uint32_t>(mask_);
        return data::append_gather(builder, params, from_, rows, fields);
    }

private:
    std::unique_ptr<data::BatchSource> inner_;
    data::RecordingSet set_;
    std::uint64_t seed_;
    std::int32_t mask_;
    data::WindowPlan plan_;
    tape::Store* store_ = nullptr;
    data::FeatureTables from_;
    data::ScalingViews scaling_;
};

/// Trains twice, streamed and resident in the same order.
class ComparedRun : public StreamingRun {
protected:
    void expect_equal_runs(const std::vector<std::string>& more) {
        const auto streamed = go("streamed", more);
        ASSERT_TRUE(streamed.ok()) << streamed.error().text();
        TrainRequest request;
        request.out = folder_ / "resident";
        request.adapt_source = [&](std::unique_ptr<data::BatchSource> inner) {
            return std::make_unique<HostOrdered>(std::move(inner), folder_ / "recordings", 42, 2);
        };
        const auto resident = train(recipe(settings(more)), request, {});
        ASSERT_TRUE(resident.ok()) << resident.error().text();
        expect_equal("streamed", "resident");
        EXPECT_EQ(streamed->members.at(0).test_loss, resident->members.at(0).test_loss);
    }
};

TEST_F(ComparedRun, GivesTheWeightsOfAResidentSetInTheSameOrder) { expect_equal_runs({}); }

TEST_F(ComparedRun, TheSameOnAGpu) {
    if (const auto there = ops::cuda_available(); !there.ok()) GTEST_SKIP() << there.error().text();
    expect_equal_runs({"device=cuda", "deterministic=true"});
}

TEST_F(StreamingRun, ResumesInTheMiddleOfAnEpochToTheBit) {
    for (const std::string members : {"1", "2"}) {
        const std::vector<std::string> more{"members=" + members};
        Killer killer(folder_ / ("whole" + members), folder_ / ("killed" + members), 17);  // twelve steps per epoch
        TrainRequest request;
        request.out = folder_ / ("whole" + members);
        request.saves = &killer.saves;
        const auto whole = train(recipe(settings(more)), request, {&killer});
        ASSERT_TRUE(whole.ok()) << whole.error().text();
        const auto resumed = go("killed" + members, more, true);
        ASSERT_TRUE(resumed.ok()) << resumed.error().text();
        EXPECT_EQ(observer_.starts.back().first_step, 17u);
        expect_equal("whole" + members, "killed" + members);
    }
}

TEST_F(StreamingRun, NumberOfThreadsChangesNothing) {
    ASSERT_TRUE(go("one", {"data.threads=1"}).ok());
    ASSERT_TRUE(go("two", {"data.threads=2"}).ok());
    expect_equal("one", "two");
}

TEST_F(StreamingRun, StaysWithinItsMemory) {
    spec_.labels = data::testing::mixed_labels(3000);
    data::testing::write_recording_folder(folder_ / "large", spec_, 300, 300);
    const auto setup = set_up(recipe(settings({"data.path=" + (folder_ / "large").string(), "data.window=64KiB"})), true);
    ASSERT_TRUE(setup.ok()) << setup.error().text();
    EXPECT_EQ(setup->data.train, 18000);
    const std::int64_t data = setup->engine->memory_needs().data, set = 3600 * 6 * 20;
    EXPECT_LE(data, (64 << 10) * 3 / 2 + 1024);
    EXPECT_LT(data * 4, set);
}

TEST_F(StreamingRun, AutoStreamsWhatDoesNotFitAndSaysWhy) {
    spec_.labels = data::testing::mixed_labels(401);
    data::testing::write_recording_folder(folder_ / "recordings", spec_, 11, 7);
    const auto probe = set_up(recipe(settings({"data.mode=resident"})), true);
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    const MemoryNeeds needs = probe->engine->memory_needs();
    const auto with = [&](std::int64_t memory) {
        return settings({"data.mode=auto", "train.epochs=1", "train.memory=" + std::to_string(memory) + "B"});
    };
    ASSERT_TRUE(run("fits", with(needs.total() + 4096)).ok());
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("resident (")) << observer_.starts.back().loading;
    const auto streamed = run("tight", with(needs.total() - needs.activations - needs.scratch + 8192));
    ASSERT_TRUE(streamed.ok()) << streamed.error().text();
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("streamed (")) << observer_.starts.back().loading;
    EXPECT_NE(observer_.starts.back().loading.find("do not fit into the memory together"), std::string::npos);
    const std::string loading = observer_.starts.back().loading;
    EXPECT_NE(loading.find("windows of"), std::string::npos) << loading;

    // What it was started with stays, even when there is room now.
    ASSERT_TRUE(run("tight", settings({"data.mode=auto", "train.epochs=2"}), true).ok());
    EXPECT_TRUE(observer_.starts.back().loading.starts_with("streamed (as the run was started)"));
    expect_refusal(run("tight", settings({"data.mode=resident", "train.epochs=3"}), true), {"data.mode", "streamed data"});
}

TEST_F(StreamingRun, EpochsTellBytesAndMix) {
    ASSERT_TRUE(go("a").ok());
    ASSERT_EQ(observer_.epochs.size(), 3u);
    std::uint64_t bytes = 0;
    for (const EpochReport& epoch : observer_.epochs) {
        ASSERT_TRUE(epoch.loader_bytes && epoch.mix_deviation);
        bytes += *epoch.loader_bytes;
        EXPECT_LT(*epoch.mix_deviation, 1);
    }
    EXPECT_GE(bytes, 3u * 354 * 20);
    EXPECT_LE(bytes, 3u * 354 * 20 + 2u * 4096);
    const auto log = record::read_metrics(folder_ / "a" / "metrics.jsonl");
    std::size_t found = 0;
    for (const record::MetricsRow& row : log->rows) found += row.find("loader_bytes") != nullptr ? 1 : 0;
    EXPECT_EQ(found, 3u);
}

/// The first two windows of the next epoch come while an epoch is evaluated, when no step asks for rows.
TEST_F(StreamingRun, TheNextEpochIsReadWhileOneIsEvaluated) {
    class Patient final : public Listener {
    public:
        base::Status on_epoch(EpochReport& report) override {
            const data::WindowPlan& plan = *dynamic_cast<data::StreamedSource&>(*source).plan(Part::train);
            const std::uint64_t wanted = 20 * (report.epoch * plan.rows + 2 * plan.window_rows());
            if (report.epoch == report.epochs) return base::ok();
            for (int i = 0; i < 2000 && source->loader_counts(0)->bytes < wanted; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds{5});
            EXPECT_EQ(source->loader_counts(0)->bytes, wanted) << "epoch " << report.epoch;
            return base::ok();
        }
        data::BatchSource* source = nullptr;
    };
    Patient patient;
    TrainRequest request;
    request.out = folder_ / "patient";
    request.adapt_source = [&](std::unique_ptr<data::BatchSource> inner) {
        patient.source = inner.get();
        return inner;
    };
    const auto done = train(recipe(settings({})), request, {&patient});
    ASSERT_TRUE(done.ok()) << done.error().text();
}

TEST_F(StreamingRun, AFileThatIsCutWhileItIsReadEndsTheRun) {
    class Cutter final : public Listener {
    public:
        explicit Cutter(fs::path file) : file_(std::move(file)) {}
        base::Status on_step(std::uint64_t step) override {
            if (step == 3) fs::resize_file(file_, 700);
            return base::ok();
        }

    private:
        fs::path file_;
    };
    Cutter cutter(folder_ / "recordings" / data::kRecordingFiles[0]);
    TrainRequest request;
    request.out = folder_ / "cut";
    const auto failed = train(recipe(settings({})), request, {&cutter});
    ASSERT_FALSE(failed.ok());
    EXPECT_TRUE(failed.error().exit_status == 1 || failed.error().exit_status == 2);
    EXPECT_NE(failed.error().text().find("TRAINING_DATASET.H5"), std::string::npos) << failed.error().text();
}

TEST_F(StreamingRun, WhatCannotBeStreamedIsRefused) {
    expect_refusal(go("a", {"data.oversample=2"}), {"data.oversample = 2", "resident"});
    expect_refusal(go("c", {"train.batch=200"}), {"a step takes 200 rows", "data.window"});
    expect_refusal(go("d", {"data.window=1KiB"}), {"data.window"});
}

TEST_F(StreamingRun, EvaluatesAndScoresAsAResidentSetDoes) {
    const auto setup = set_up(recipe(settings({})), true), resident = set_up(recipe(settings({"data.mode=resident"})), true);
    ASSERT_TRUE(setup.ok() && resident.ok());
    for (const Part part : {Part::validation, Part::test, Part::validation}) {
        const auto a = setup->engine->evaluate(part), b = resident->engine->evaluate(part);
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_NEAR(a->at(0).loss, b->at(0).loss, 1e-12);
        ASSERT_EQ(a->at(0).more.figures.size(), b->at(0).more.figures.size());
        for (std::size_t i = 0; i < a->at(0).more.figures.size(); ++i)
            EXPECT_EQ(a->at(0).more.figures[i].value, b->at(0).more.figures[i].value) << a->at(0).more.figures[i].name;
    }
}

}  // namespace
}  // namespace millrace::train
