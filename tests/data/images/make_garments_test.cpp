#include "data/makers.h"

#include <gtest/gtest.h>

#include "data/forms.h"
#include "data/images/image_set.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

constexpr GarmentsOptions kSmall{203, 31, 5};

TEST(MakeGarments, WritesASetThatLoads) {
    const test::TemporaryFolder folder;
    std::uint64_t last = 0;
    const auto made = make_garments(folder / "deep/er", kSmall, [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_EQ(total, 234u);
        EXPECT_GT(done, last);
        last = done;
    });
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(*made, MakeOutcome::kWritten);
    EXPECT_EQ(last, 234u);
    const auto set = load_image_set({folder / "deep/er"});
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, "garments");
    EXPECT_EQ(set->part(Part::train).size() + set->part(Part::validation).size(), 203u);
    EXPECT_EQ(set->part(Part::test).size(), 31u);
    EXPECT_EQ(set->labels[123], 3);
    SampleSet measured = *set;
    ASSERT_TRUE(measure_channels(measured).ok());
    EXPECT_EQ(set->preparation, measured.preparation) << "as the description says";
}

TEST(MakeGarments, SameSetIsLeftAlone) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_garments(folder.path(), kSmall).ok());
    const auto before = std::filesystem::last_write_time(folder / kTrainImages);
    const auto again = make_garments(folder.path(), kSmall);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, MakeOutcome::kAlreadyThere);
    EXPECT_EQ(std::filesystem::last_write_time(folder / kTrainImages), before);
}

TEST(MakeGarments, InterruptedSetIsCompleted) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_garments(folder.path(), kSmall).ok());
    std::filesystem::remove(folder / kDescription);
    std::filesystem::remove(folder / kTestImages);
    const auto again = make_garments(folder.path(), kSmall);
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_TRUE(load_image_set({folder.path()}).ok());
}

TEST(MakeGarments, OtherSetsAreRefused) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_garments(folder.path(), kSmall).ok());
    EXPECT_FALSE(make_garments(folder.path(), {203, 31, 6}).ok());
    std::filesystem::remove(folder / kDescription);
    EXPECT_FALSE(make_garments(folder.path(), {203, 31, 6}).ok());
    ASSERT_TRUE(io::write_atomically(folder / kDescription, R"({"name": "mnist"})").ok());
    EXPECT_FALSE(make_garments(folder.path(), kSmall).ok());
}

TEST(MakeGarments, EmptySetsAreRefused) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(make_garments(folder.path(), {0, 1, 1}).ok());
    EXPECT_FALSE(make_garments(folder.path(), {1, 0, 1}).ok());
}

}  // namespace
}  // namespace millrace::data
