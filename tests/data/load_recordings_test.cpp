// Folders of recordings in HDF5: what is read, and what is refused with which words.

#include "data/recordings/recording_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "data/load.h"
#include "data/recording_files.h"
#include "io/hdf5.h"
#include "temporary_folder.h"
#include "tensor/dtype.h"

namespace millrace::data {
namespace {

struct FileSpec {
    std::vector<std::uint64_t> dims{3, 2, 2, 4, 1};
    std::vector<std::int16_t> labels{0, 2, 1};
    std::string names = R"(["A", "LEAK", "C"])";
    bool statistics = true, f32 = false;
    float special = 0;  ///< the last feature of recording 1
    std::uint64_t chunk = 0;
};

class LoadRecordings : public ::testing::Test {
protected:
    void SetUp() override {
        if (!io::have_hdf5()) GTEST_SKIP() << "built without HDF5";
    }
    void write(const char* name, const FileSpec& spec = {}) const {
        auto writer = io::Hdf5Writer::create(folder_ / name);
        ASSERT_TRUE(writer.ok()) << writer.error().text();
        const auto add = [&](const io::Hdf5Layout& layout, const auto& values) {
            testing::add_dataset(**writer, layout, values);
        };
        std::uint64_t count = 1;
        for (const std::uint64_t extent : spec.dims) count *= extent;
        std::vector<float> wide(count);
        for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(i % 7) - 60;
        if (spec.special != 0 && !spec.dims.empty()) wide[2 * count / spec.dims[0] - 1] = spec.special;
        std::vector<std::uint16_t> halves(count);
        std::ranges::transform(wide, halves.begin(), tensor::to_f16);
        io::Hdf5Layout layout{
            .name = "segments_mel", .type = spec.f32 ? io::ElementType::kF32 : io::ElementType::kF16, .dims = spec.dims};
        if (spec.chunk > 0) {
            layout.chunk = spec.dims;
            layout.chunk[0] = spec.chunk;
            layout.gzip = 4;
        }
        if (spec.f32)
            add(layout, wide);
        else
            add(layout, halves);
        if (!spec.labels.empty())
            add({.name = "labels", .type = io::ElementType::kI16, .dims = {spec.labels.size()}}, spec.labels);
        if (spec.statistics) {
            add({.name = "mel_mean", .type = io::ElementType::kF32, .dims = {4}}, std::vector<float>{1, 2, 3, 4});
            add({.name = "mel_std", .type = io::ElementType::kF32, .dims = {4}}, std::vector<float>{5, 6, 7, 8});
        }
        if (!spec.names.empty()) {
            ASSERT_TRUE((*writer)->set_attribute("labels_json", spec.names).ok());
        }
        const auto finished = (*writer)->finish();
        ASSERT_TRUE(finished.ok()) << finished.error().text();
    }
    void write_all(const FileSpec& spec = {}) const {
        for (const char* name : kRecordingFiles) write(name, spec);
    }
    [[nodiscard]] Result<RecordingSet> load(const RecordingRequest& request = {}) const {
        return load_recording_set(folder_.path(), request);
    }
    /// Loading fails with all of these words.
    void expect_refusal(const std::vector<std::string>& words, const RecordingRequest& request = {}) const {
        const auto set = load(request);
        ASSERT_FALSE(set.ok());
        for (const std::string& word : words) EXPECT_NE(set.error().text().find(word), std::string::npos) << set.error().text();
    }
    test::TemporaryFolder folder_;
};

TEST_F(LoadRecordings, PartsClassesAndStatisticsAreRead) {
    write_all();
    const auto set = load();
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->classes.names, (std::vector<std::string>{"NOLEAK", "LEAK"}));
    EXPECT_EQ(set->part(Part::train).labels, (std::vector<std::int32_t>{0, 0, 1}));
    EXPECT_EQ(set->classes.counts, (std::vector<std::int64_t>{8, 4}));
    EXPECT_EQ(set->classes.together, (std::vector<std::int32_t>{2, 2}));
    EXPECT_EQ(set->scaling->mean, (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(set->part(Part::test).features[9], tensor::to_f16(9 % 7 - 60));
    const auto all = load({"C", false, {}});
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all->classes.positive, 2);
    EXPECT_EQ(all->part(Part::train).labels, (std::vector<std::int32_t>{0, 2, 1}));
}

TEST_F(LoadRecordings, ClassLookedForIsThatOfTheSetUnlessAskedFor) {
    FileSpec two;
    two.labels = {0, 1, 1};
    for (const auto& [names, label] : {std::pair{R"(["NOPUMP", "PUMP"])", 1}, std::pair{R"(["LEAK", "REST"])", 0}}) {
        two.names = names;
        write_all(two);
        const auto set = load();
        ASSERT_TRUE(set.ok()) << set.error().text();
        EXPECT_EQ(set->classes.positive, label) << names;
    }
    two.names = R"(["NOPUMP", "PUMP"])";
    write_all(two);
    EXPECT_EQ(load({.positive = "NOPUMP"})->classes.positive, 0);
    expect_refusal({"there is no class LEAK", "NOPUMP, PUMP"}, {.positive = "LEAK"});
    two.names = R"(["A", "B", "C"])";
    write_all(two);
    expect_refusal({"there is no class LEAK", "A, B, C"});
}

TEST_F(LoadRecordings, OtherFormsGiveTheSameFeatures) {
    write_all();
    const auto plain = load();
    FileSpec packed, channel, wide;
    packed.chunk = 2;
    channel.dims = {3, 2, 2, 1, 4, 1};
    wide.f32 = true;
    for (const FileSpec& spec : {packed, channel, wide}) {
        write_all(spec);
        const auto other = load();
        ASSERT_TRUE(other.ok()) << other.error().text();
        EXPECT_EQ(other->part(Part::train).features, plain->part(Part::train).features);
        EXPECT_EQ(other->width, 4);
    }
}

TEST_F(LoadRecordings, WithoutATestFileThereIsNoTestPart) {
    write(kRecordingFiles[0]);
    write(kRecordingFiles[1]);
    const auto set = load();
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->part(Part::test).count, 0);
}

TEST_F(LoadRecordings, StatisticsAreMeasuredOrThoseOfTheRun) {
    FileSpec bare;
    bare.statistics = false;
    write_all(bare);
    const auto measured = load();
    ASSERT_TRUE(measured.ok());
    EXPECT_NEAR(measured->scaling->mean[0], -57, 3);
    RecordingRequest request;
    request.scaling = std::make_shared<const Scaling>(Scaling{{9, 9, 9, 9}, {1, 1, 1, 1}});
    EXPECT_EQ(load(request)->scaling->mean[0], 9);
    request.scaling = std::make_shared<const Scaling>(Scaling{{9}, {1}});
    expect_refusal({"4 features", "those of the run 1"}, request);
}

TEST_F(LoadRecordings, WhatDoesNotFitIsRefused) {
    write_all();
    expect_refusal({"no class LEEK", "did you mean LEAK", "A, LEAK, C"}, {"LEEK", true, {}});
    const auto refuse = [&](const FileSpec& spec, const std::vector<std::string>& words, const char* name = kRecordingFiles[0]) {
        write_all();
        write(name, spec);
        expect_refusal(words);
    };
    FileSpec spec;
    spec.dims = {3, 2, 2, 4};
    refuse(spec, {"TRAINING_DATASET.H5", "segments_mel [3, 2, 2, 4]", "would be right"});
    spec = {};
    spec.dims = {3, 2, 2, 8, 1};
    refuse(spec, {"VALIDATION_DATASET.H5", "2 x 2 of 8 features", "not those of TRAINING_DATASET.H5"}, kRecordingFiles[1]);
    spec = {};
    spec.labels = {0, 1};
    refuse(spec, {"labels [2]", "3 recordings"});
    spec.labels = {0, 1, 3};
    refuse(spec, {"recording 2", "outside of the 3 classes"});
    spec.labels = {};
    refuse(spec, {"there is no data set labels"});
    spec = {};
    spec.special = std::numeric_limits<float>::quiet_NaN();
    refuse(spec, {"recording 1", "not finite"});
    spec = {};
    spec.names = "{\"LEAK\": 1}";
    refuse(spec, {"labels_json", "list of names"});
    spec.names = "";
    refuse(spec, {"labels_json"});
    std::filesystem::resize_file(folder_ / kRecordingFiles[1], 200);
    write(kRecordingFiles[0]);
    expect_refusal({"VALIDATION_DATASET.H5"});
    std::filesystem::remove(folder_ / kRecordingFiles[0]);
    expect_refusal({"TRAINING_DATASET.H5"});
}

}  // namespace
}  // namespace millrace::data
