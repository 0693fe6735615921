#include "data/images/resident_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/gather_rig.h"
#include "models/tiny_images.h"

namespace millrace::data {
namespace {

struct Gathered {
    Gathered(std::shared_ptr<const ImageSet> set, Augmentation augmentation, Part part, std::int32_t rows, bool training,
             int members = 1, base::Rank rank = {})
        : source(std::move(set), augmentation, rank),
          rig(source, ops::DeviceKind::ref, training, members, [&](tape::Builder& builder) {
              x = behind_two_columns(builder, rows, source.fields()[0].width);
              labels = source.gather(builder, part, rows, {{"image", x}, {"label"}})[1];
          }) {
        rig.program->run();
    }
    ResidentImages source;
    tensor::View x, labels;
    GatherRig rig;
};

std::vector<double> normalised(const ImageSet& set, const LabeledImages& images, std::size_t index) {
    const std::size_t pixels = std::size_t{images.rows} * images.columns;
    std::vector<double> row;
    for (std::size_t p = 0; p < pixels; ++p)
        row.push_back((images.pixels[index * pixels + p] / 255.0 - static_cast<float>(set.pixels.mean)) /
                      static_cast<float>(set.pixels.deviation));
    return row;
}

TEST(ResidentImages, EvaluationReadsEachPartInItsOrder) {
    const auto set = testing::tiny_set(30, 7);
    for (Part part : {Part::train, Part::validation, Part::test}) {
        const std::int32_t rows = part == Part::train ? 27 : part == Part::validation ? 3 : 7;
        Gathered gathered(set, {}, part, rows, false);
        ASSERT_EQ(gathered.source.samples(part), rows);
        const auto values = gathered.rig.program->read(gathered.x), labels = gathered.rig.program->read(gathered.labels);
        const LabeledImages& images = part == Part::test ? set->test : set->train;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
            const std::size_t index = part == Part::test    ? row
                                      : part == Part::train ? set->split.training[row]
                                                            : set->split.validation[row];
            EXPECT_EQ(labels[row], images.labels[index]);
            const auto wanted = normalised(*set, images, index);
            for (std::size_t p = 0; p < wanted.size(); ++p)
                ASSERT_NEAR(values[row * wanted.size() + p], wanted[p], 1e-6) << row << " " << p;
        }
    }
}

TEST(ResidentImages, AnEpochVisitsEverySampleOnceInEachMembersOwnOrder) {
    const auto set = testing::tiny_set(30, 7);
    Gathered gathered(set, {}, Part::train, 27, true, 2);
    const auto values = gathered.rig.program->read(gathered.x);
    const std::size_t pixels = 25;
    std::vector<std::vector<double>> wanted;
    for (std::uint32_t index : set->split.training) wanted.push_back(normalised(*set, set->train, index));
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

TEST(ResidentImages, SharesOfAllMachinesMakeUpTheOrderOfTheWhole) {
    const auto set = testing::tiny_set(30, 7);
    for (std::uint32_t world : {1u, 2u, 4u, 27u}) {
        std::set<std::uint32_t> seen;
        for (std::uint32_t rank = 0; rank < world; ++rank) {
            const base::Rank machine{rank, world};
            const std::int32_t rows = 27 / static_cast<std::int32_t>(world) + (rank < 27 % world ? 1 : 0);
            Gathered gathered(set, {}, Part::train, rows, true, 1, machine);
            ASSERT_EQ(gathered.source.samples(Part::train), rows);
            ASSERT_EQ(gathered.source.samples(Part::validation), 3) << "every machine scores all of it";
            const auto values = gathered.rig.program->read(gathered.x);
            for (std::uint32_t q = 0; q < static_cast<std::uint32_t>(rows); ++q) {
                // Seed 70, epoch 0: the order of a single machine, every `world`-th of it.
                const std::uint32_t index = set->split.training[base::shuffled_index(70, 0, q * world + rank, 27)];
                EXPECT_TRUE(seen.insert(index).second) << index;
                const auto wanted = normalised(*set, set->train, index);
                for (std::size_t p = 0; p < wanted.size(); ++p) ASSERT_NEAR(values[q * wanted.size() + p], wanted[p], 1e-6) << q;
            }
        }
        EXPECT_EQ(seen.size(), 27u) << world;
    }
}

TEST(ResidentImages, AugmentationTouchesTrainingAlone) {
    const auto set = testing::tiny_set(30, 7);
    Augmentation augmentation;
    augmentation.enabled = true;
    auto read = [&](Augmentation given, bool training) {
        Gathered gathered(set, given, Part::train, 27, training);
        return gathered.rig.program->read(gathered.x);
    };
    EXPECT_NE(read(augmentation, true), read({}, true));
    EXPECT_EQ(read(augmentation, false), read({}, false));
}

TEST(ResidentImages, SetsThatCannotTrainAreRefused) {
    auto backend = ops::make_backend(ops::DeviceKind::ref, {}).value();
    auto refused = [&](auto change, Augmentation augmentation, const char* word) {
        ImageSet set = *testing::tiny_set(30, 7);
        change(set);
        tape::Store store(*backend, {});
        ResidentImages source(std::make_shared<const ImageSet>(std::move(set)), augmentation);
        auto status = source.declare(store);
        ASSERT_FALSE(status.ok()) << word;
        EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
    };
    refused([](ImageSet& set) { set.train = {}; }, {}, "training set has no images");
    refused([](ImageSet& set) { set.test = {}; }, {}, "test set has no images");
    refused([](ImageSet& set) { set.split.training.clear(); }, {}, "validation");
    Augmentation augmentation;
    augmentation.enabled = true;
    refused([](ImageSet& set) { set.train.rows = 1; }, augmentation, "square");
}

}  // namespace
}  // namespace millrace::data
