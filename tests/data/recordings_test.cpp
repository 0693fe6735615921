// Recordings that live on the device: their order, their scaling, the classes.

#include <gtest/gtest.h>

#include <set>

#include "data/recordings/resident_recordings.h"
#include "tape/program.h"
#include "tensor/dtype.h"

namespace millrace::data {
namespace {

/// `count` recordings of 2 x 3 windows of 4 features; feature d of window w of recording r is 10 r + w + d / 4.
Recordings recordings(std::int32_t count, std::int32_t classes) {
    Recordings made{count, {}, {}};
    for (std::int32_t r = 0; r < count; ++r) {
        for (int w = 0; w < 6; ++w)
            for (int d = 0; d < 4; ++d)
                made.features.push_back(tensor::to_f16(static_cast<float>(10 * r + w) + 0.25f * static_cast<float>(d)));
        made.labels.push_back(r % classes);
    }
    return made;
}

RecordingSet small_set(std::int32_t classes = 3) {
    RecordingSet set;
    set.name = "small";
    set.windows = 6;
    set.width = 4;
    for (std::int32_t c = 0; c < classes; ++c) set.classes.names.push_back("C" + std::to_string(c));
    set.classes.positive = 1;
    set.classes.together = {2, 3};
    set.parts = {recordings(5, classes), recordings(2, classes), recordings(1, classes)};
    set.scaling = std::make_shared<const Scaling>(Scaling{{1, 1, 1, 1}, {2, 2, 2, 2}});
    count_classes(set);
    return set;
}

TEST(Recordings, MeasureFindsMeanAndDeviationOfEachFeature) {
    Recordings two{1, {}, {0}};
    for (const float value : {-60.0f, 5.0f, -62.0f, 5.0f}) two.features.push_back(tensor::to_f16(value));
    const Scaling scaling = measure(two, 2);
    EXPECT_EQ(scaling.mean, (std::vector<float>{-61, 5}));
    EXPECT_EQ(scaling.deviation, (std::vector<float>{1, 1}));  // the second never changes
}

TEST(Recordings, TwoClassesAreThePositiveOneAndAllOthers) {
    RecordingSet set = small_set();
    make_binary(set);
    count_classes(set);
    EXPECT_EQ(set.classes.names, (std::vector<std::string>{"NOC1", "C1"}));
    EXPECT_EQ(set.part(Part::train).labels, (std::vector<std::int32_t>{0, 1, 0, 0, 1}));
    EXPECT_EQ(set.classes.counts, (std::vector<std::int64_t>{18, 12}));
}

/// The rows that a program of `part` gathers, as "label:first feature" in f32.
std::multiset<std::pair<int, float>> gathered(const RecordingSet& set, RecordingOptions options, bool training, Part part,
                                              std::int32_t rows) {
    auto backend = ops::make_backend(ops::DeviceKind::cpu, {});
    tape::Store store(**backend, {});
    ResidentRecordings source(std::make_shared<const RecordingSet>(set), options);
    EXPECT_EQ(source.samples(part), rows);
    EXPECT_TRUE(source.declare(store).ok());
    EXPECT_TRUE(store.allocate().ok());
    EXPECT_TRUE(source.upload(store).ok());
    tape::BuildOptions build;
    build.training = training;
    tape::Builder builder(store, build);
    const auto views = source.gather(builder, part, rows, {{"features"}, {"label"}});
    for (const auto& view : views) builder.keep(view);
    tape::Arena arena(**backend);
    tape::Program program("gather", store, std::move(builder), arena);
    EXPECT_TRUE(arena.allocate().ok());
    EXPECT_TRUE(program.prepare().ok());
    program.run();
    const auto x = program.read(views[0]), labels = program.read(views[1]);
    std::multiset<std::pair<int, float>> found;
    for (std::size_t i = 0; i < labels.size(); ++i) found.insert({static_cast<int>(labels[i]), static_cast<float>(x[4 * i])});
    return found;
}

TEST(Recordings, EveryWindowComesOnceScaledWithItsRecordingsLabel) {
    std::multiset<std::pair<int, float>> expected;
    for (int r = 0; r < 5; ++r)
        for (int w = 0; w < 6; ++w) expected.insert({r % 3, (static_cast<float>(10 * r + w) - 1) / 2});
    EXPECT_EQ(gathered(small_set(), {}, true, Part::train, 30), expected);
}

TEST(Recordings, OversamplingRepeatsThePositiveClassInTrainingAlone) {
    const auto train = gathered(small_set(), {3, 0}, true, Part::train, 30 + 2 * 12);
    EXPECT_EQ(std::count_if(train.begin(), train.end(), [](const auto& row) { return row.first == 1; }), 3 * 12);
    EXPECT_EQ(train.count({1, 4.5f}), 3u);
    gathered(small_set(), {3, 0}, false, Part::validation, 12);
}

TEST(Recordings, EmptyTrainingPartIsRefused) {
    RecordingSet set = small_set();
    set.parts[index_of(Part::train)] = {};
    auto backend = ops::make_backend(ops::DeviceKind::cpu, {});
    tape::Store store(**backend, {});
    const auto declared = ResidentRecordings(std::make_shared<const RecordingSet>(set)).declare(store);
    ASSERT_FALSE(declared.ok());
    EXPECT_NE(declared.error().text().find("no recordings"), std::string::npos);
}

}  // namespace
}  // namespace millrace::data
