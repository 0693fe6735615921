#include "data/pairs/resident_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/gather_rig.h"

namespace millrace::data {
namespace {

constexpr std::int32_t kWidth = 5;

/// Pair i has the input (i, i + 0.25, ...) and the target (-i, -i - 0.25, ...): a row says which it is.
std::shared_ptr<const PairSet> numbered_set(std::uint32_t count) {
    PairSet set;
    set.count = count;
    set.dimensions = kWidth;
    for (std::uint32_t i = 0; i < count; ++i)
        for (int column = 0; column < kWidth; ++column) {
            set.inputs.push_back(static_cast<float>(i) + 0.25f * static_cast<float>(column));
            set.targets.push_back(-set.inputs.back());
        }
    split_samples(set.parts, 0, static_cast<std::int32_t>(count), 0.2, 0, 3);
    return std::make_shared<const PairSet>(std::move(set));
}

/// One program that gathers inputs and targets.
struct GatheredPairs {
    GatheredPairs(ops::DeviceKind kind, std::shared_ptr<const PairSet> set, Part part, std::int32_t rows, bool training,
                  int members = 1)
        : source(std::move(set)), rig(source, kind, training, members, [&](tape::Builder& builder) {
              x = behind_two_columns(builder, rows, kWidth);
              y = builder.activation(rows, kWidth, "y", false).view;
              source.gather(builder, part, rows, {{"vector", x}, {"goal", y}});
              builder.keep(x);
              builder.keep(y);
          }) {
        rig.program->run();
    }
    /// Which pair each row holds, over all members; checks that whole rows and their targets belong to it.
    std::vector<std::int32_t> pairs() {
        const auto inputs = rig.program->read(x), targets = rig.program->read(y);
        std::vector<std::int32_t> found;
        for (std::size_t row = 0; row < inputs.size() / kWidth; ++row) {
            const double first = inputs[row * kWidth];
            for (std::size_t column = 0; column < kWidth; ++column) {
                EXPECT_EQ(inputs[row * kWidth + column], first + 0.25 * static_cast<double>(column));
                EXPECT_EQ(targets[row * kWidth + column], -inputs[row * kWidth + column]);
            }
            found.push_back(static_cast<std::int32_t>(first));
        }
        return found;
    }
    PairSource source;
    tensor::View x, y;
    GatherRig rig;
};

TEST(ResidentPairs, EvaluationReadsEachPartInItsOrder) {
    const auto set = numbered_set(31);
    for (const ops::DeviceKind kind : {ops::DeviceKind::ref, ops::DeviceKind::cpu}) {
        EXPECT_EQ(GatheredPairs(kind, set, Part::train, 25, false).pairs(), set->part(Part::train));
        GatheredPairs validation(kind, set, Part::validation, 6, false);
        EXPECT_EQ(validation.pairs(), set->part(Part::validation));
        EXPECT_EQ(validation.source.samples(Part::train), 25);
        EXPECT_EQ(validation.source.samples(Part::validation), 6);
        EXPECT_EQ(validation.source.samples(Part::test), 0);
        EXPECT_EQ(validation.source.dimensions(), kWidth);
    }
}

TEST(ResidentPairs, AnEpochVisitsEveryPairOnceInEachMembersOwnOrder) {
    const auto set = numbered_set(31);
    const auto found = GatheredPairs(ops::DeviceKind::ref, set, Part::train, 25, true, 2).pairs();
    ASSERT_EQ(found.size(), 50u);
    const std::vector<std::int32_t> first(found.begin(), found.begin() + 25), second(found.begin() + 25, found.end());
    const std::set<std::int32_t> wanted(set->part(Part::train).begin(), set->part(Part::train).end());
    EXPECT_EQ(std::set(first.begin(), first.end()), wanted);
    EXPECT_EQ(std::set(second.begin(), second.end()), wanted);
    EXPECT_NE(first, second);
    EXPECT_NE(first, set->part(Part::train));
    EXPECT_EQ(GatheredPairs(ops::DeviceKind::cpu, set, Part::train, 25, true, 2).pairs(), found);
}

TEST(ResidentPairs, SetsThatCannotTrainAreRefused) {
    auto backend = ops::make_backend(ops::DeviceKind::ref, {}).value();
    for (const bool empty : {true, false}) {
        PairSet set = *numbered_set(7);
        if (empty) set.count = 0;
        set.part(Part::train).clear();
        tape::Store store(*backend, {});
        const auto status = PairSource(std::make_shared<const PairSet>(std::move(set))).declare(store);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find(empty ? "no pairs" : "data.validation"), std::string::npos);
    }
}

}  // namespace
}  // namespace millrace::data
