#include "base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace::base {
namespace {

TEST(Nearest, DistanceCountsEditsAndSwaps) {
    EXPECT_EQ(edit_distance("", ""), 0u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("epohcs", "epochs"), 1u);
    EXPECT_EQ(edit_distance("ba", "ab"), 1u);
}

TEST(Nearest, FindsTheMistypedName) {
    const std::vector<std::string> names = {"train.batch", "train.epochs", "optim.lr", "seed"};
    EXPECT_EQ(nearest_name("train.epoch", names), "train.epochs");
    EXPECT_EQ(nearest_name("trian.batch", names), "train.batch");
    EXPECT_EQ(nearest_name("sede", names), "seed");
    EXPECT_EQ(nearest_name("lr", names), "optim.lr");
    EXPECT_EQ(nearest_name("model.epochs", names), "train.epochs");
}

TEST(Nearest, AbstainsWhenNothingIsClose) {
    const std::vector<std::string> names = {"train.batch", "seed"};
    EXPECT_EQ(nearest_name("colour", names), "");
    EXPECT_EQ(nearest_name("", names), "");
    EXPECT_EQ(nearest_name("xy", {}), "");
    EXPECT_EQ(nearest_name(std::string(100000, 'a'), names), "");
}

}  // namespace
}  // namespace millrace::base
