#include "data/resident_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/gather_rig.h"
#include "models/tiny_images.h"

namespace millrace::data {
namespace {

struct Gathered {
    Gathered(std::shared_ptr<const SampleSet> set, Augmentation augmentation, Part part, std::int32_t rows, bool training,
             int members = 1)
        : source(std::move(set), augmentation), rig(source, ops::DeviceKind::ref, training, members, [&](tape::Builder& builder) {
              x = behind_two_columns(builder, rows, source.fields()[0].width);
              labels = source.gather(builder, part, rows, {{"image", x}, {"label"}})[1];
          }) {
        rig.program->run();
    }
    ResidentSamples source;
    tensor::View x, labels;
    GatherRig rig;
};

std::vector<double> normalised(const SampleSet& set, std::int32_t sample) {
    std::vector<double> row;
    for (std::int32_t p = 0; p < set.width; ++p)
        row.push_back((set.bytes[static_cast<std::size_t>(sample * set.width + p)] / 255.0 - set.preparation.mean[0]) /
                      set.preparation.deviation[0]);
    return row;
}

TEST(ResidentSamples, EvaluationReadsEachPartInItsOrder) {
    const auto set = millrace::testing::tiny_set(30, 7);
    for (Part part : {Part::train, Part::validation, Part::test}) {
        const std::int32_t rows = part == Part::train ? 27 : part == Part::validation ? 3 : 7;
        Gathered gathered(set, {}, part, rows, false);
        ASSERT_EQ(gathered.source.samples(part), rows);
        const auto values = gathered.rig.program->read(gathered.x), labels = gathered.rig.program->read(gathered.labels);
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
            const std::int32_t sample = set->part(part)[row];
            EXPECT_EQ(labels[row], set->labels[static_cast<std::size_t>(sample)]);
            const auto wanted = normalised(*set, sample);
            for (std::size_t p = 0; p < wanted.size(); ++p)
                ASSERT_NEAR(values[row * wanted.size() + p], wanted[p], 1e-6) << row << " " << p;
        }
    }
}

TEST(ResidentSamples, AnEpochVisitsEverySampleOnceInEachMembersOwnOrder) {
    const auto set = millrace::testing::tiny_set(30, 7);
    Gathered gathered(set, {}, Part::train, 27, true, 2);
    const auto values = gathered.rig.program->read(gathered.x);
    const std::size_t pixels = 25;
    std::vector<std::vector<double>> wanted;
    for (const std::int32_t sample : set->part(Part::train)) wanted.push_back(normalised(*set, sample));
    std::vector<std::vector<std::size_t>> orders(2);
    for (std::size_t member = 0; member < 2; ++member)
        for (std::size_t row = 0; row < 27; ++row) {
            const double* found = values.data() + (member * 27 + row) * pixels;
            for (std::size_t i = 0; i < wanted.size(); ++i)
                if (std::equal(wanted[i].begin(), wanted[i].end(), found,
                               [](double a, double b) { return std::abs(a - b) < 1e-6; }))
                    orders[member].push_back(i);
        }
    for (const auto& order : orders) {
        EXPECT_EQ(order.size(), 27u);
        EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 27u);
    }
    EXPECT_NE(orders[0], orders[1]);
    EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
}

TEST(ResidentSamples, AugmentationTouchesTrainingAlone) {
    const auto set = millrace::testing::tiny_set(30, 7);
    Augmentation augmentation;
    augmentation.enabled = true;
    auto read = [&](Augmentation given, bool training) {
        Gathered gathered(set, given, Part::train, 27, training);
        return gathered.rig.program->read(gathered.x);
    };
    EXPECT_NE(read(augmentation, true), read({}, true));
    EXPECT_EQ(read(augmentation, false), read({}, false));
}

TEST(ResidentSamples, SetsThatCannotTrainAreRefused) {
    auto backend = ops::make_backend(ops::DeviceKind::ref, {}).value();
    auto refused = [&](auto change, Augmentation augmentation, const char* word) {
        SampleSet set = *millrace::testing::tiny_set(30, 7);
        change(set);
        tape::Store store(*backend, {});
        ResidentSamples source(std::make_shared<const SampleSet>(std::move(set)), augmentation);
        auto status = source.declare(store);
        ASSERT_FALSE(status.ok()) << word;
        EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
    };
    refused([](SampleSet& set) { set.count = 0; }, {}, "no images");
    refused([](SampleSet& set) { set.part(Part::train).clear(); }, {}, "validation");
    Augmentation augmentation;
    augmentation.enabled = true;
    refused([](SampleSet& set) { set.bytes = {}; }, augmentation, "images cannot be augmented");
}

/// Colour pictures 3 wide and 2 high whose answers are numbers.
std::shared_ptr<const SampleSet> colour_set() {
    SampleSet set;
    set.count = 5;
    set.width = 18;
    set.preparation.shape = {2, 3, 3};
    set.preparation.mean = {0.1f, 0.2f, 0.3f};
    set.preparation.deviation = {0.5f, 0.25f, 1};
    set.preparation.target = Target{"size", 10, 2};
    for (int i = 0; i < 90; ++i) set.bytes.push_back(static_cast<std::uint8_t>(i * 2));
    for (int i = 0; i < 5; ++i) set.targets.push_back(static_cast<float>(i) / 2);
    set.part(Part::train) = {4, 0, 2};
    set.part(Part::test) = {1, 3};
    return std::make_shared<const SampleSet>(std::move(set));
}

TEST(ResidentSamples, ColourHasItsOwnScaleInEachChannelAndAnswersMayBeNumbers) {
    const auto set = colour_set();
    for (const ops::DeviceKind device : {ops::DeviceKind::ref, ops::DeviceKind::cpu}) {
        ResidentSamples source(set);
        EXPECT_EQ(text_of(source.fields()), "image: 2 x 3 x 3 real, target: 1 real");
        tensor::View x, targets;
        GatherRig rig(source, device, false, 1, [&](tape::Builder& builder) {
            x = behind_two_columns(builder, 3, 18);
            targets = source.gather(builder, Part::train, 3, {{"image", x}, {"target"}})[1];
            builder.keep(x);
            builder.keep(targets);
        });
        rig.program->run();
        const auto values = rig.program->read(x), answers = rig.program->read(targets);
        EXPECT_EQ(answers, (std::vector<double>{2, 0, 1}));
        for (std::size_t row = 0; row < 3; ++row)
            for (std::size_t i = 0; i < 18; ++i) {
                const auto sample = static_cast<std::size_t>(set->part(Part::train)[row]);
                const double wanted =
                    (set->bytes[sample * 18 + i] / 255.0 - set->preparation.mean[i % 3]) / set->preparation.deviation[i % 3];
                ASSERT_NEAR(values[row * 18 + i], wanted, 1e-5) << row << " " << i;
            }
    }
}

TEST(ResidentSamples, MirroredPicturesKeepTheirColours) {
    const auto set = colour_set();
    Augmentation mirror;
    mirror.enabled = true;
    mirror.rotate = mirror.shift = mirror.scale = 0;
    mirror.flip = 1;
    for (const ops::DeviceKind device : {ops::DeviceKind::ref, ops::DeviceKind::cpu}) {
        ResidentSamples source(set, mirror);
        tensor::View x, targets;
        GatherRig rig(source, device, true, 1, [&](tape::Builder& builder) {
            x = behind_two_columns(builder, 3, 18);
            targets = source.gather(builder, Part::train, 3, {{"image", x}, {"target"}})[1];
            builder.keep(x);
            builder.keep(targets);
        });
        rig.program->run();
        const auto values = rig.program->read(x), answers = rig.program->read(targets);
        for (std::size_t row = 0; row < 3; ++row)
            for (std::size_t i = 0; i < 18; ++i) {
                const std::size_t sample = static_cast<std::size_t>(2 * answers[row] + 0.5), c = i % 3, u = i / 3 % 3, v = i / 9;
                const double pixel = set->bytes[sample * 18 + (v * 3 + 2 - u) * 3 + c];
                ASSERT_NEAR(values[row * 18 + i], (pixel / 255 - set->preparation.mean[c]) / set->preparation.deviation[c], 1e-5)
                    << row << " " << i;
            }
    }
}

}  // namespace
}  // namespace millrace::data
