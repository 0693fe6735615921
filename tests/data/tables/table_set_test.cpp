// Tables: what columns become, what is missing, and what is refused.

#include "data/forms.h"

#include <gtest/gtest.h>

#include <cmath>

#include "temporary_folder.h"

namespace millrace::data {
namespace {

class TableSet : public ::testing::Test {
protected:
    void SetUp() override {
        request.path = folder / "t.csv";
        request.target = "price";
        request.validation = request.test = 0;
    }
    void write(const std::string& text) const { ASSERT_TRUE(io::write_atomically(request.path, text).ok()); }
    [[nodiscard]] std::string refusal() const {
        const auto set = load_table_set(request);
        EXPECT_FALSE(set.ok());
        return set.ok() ? "" : set.error().text();
    }
    test::TemporaryFolder folder;
    SampleRequest request;
};

TEST_F(TableSet, NumbersAreScaledAndWordsBecomeColumns) {
    write("area,town,price\n10,Rome,1\n20,\"Paris, France\",2\n30,Rome,3\n,?,4\n");
    const auto set = load_table_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    ASSERT_EQ(set->width, 4) << "area; another town, Paris, Rome";
    const double deviation = std::sqrt(200.0 / 3);
    const float wanted[4][4] = {{static_cast<float>(-10 / deviation), 0, 0, 1},
                                {0, 0, 1, 0},
                                {static_cast<float>(10 / deviation), 0, 0, 1},
                                {0, 1, 0, 0}};
    for (std::size_t row = 0; row < 4; ++row)
        for (std::size_t column = 0; column < 4; ++column)
            EXPECT_NEAR(set->numbers[row * 4 + column], wanted[row][column], 1e-6) << row << " " << column;
    ASSERT_TRUE(set->preparation.target.has_value());
    EXPECT_DOUBLE_EQ(set->preparation.target->mean, 2.5);
    EXPECT_NEAR(set->targets[3], 1.5 / std::sqrt(1.25), 1e-6);
    EXPECT_EQ(set->notes.size(), 3u) << "of area, of town, of the target";
}

TEST_F(TableSet, TheTypeOrTheRecipeDecidesTheTask) {
    write("a,price\n1,7\n2,8\n3,7\n");
    request.task = "classification";
    auto set = load_table_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.class_names, (std::vector<std::string>{"7", "8"}));
    EXPECT_EQ(set->labels, (std::vector<std::int32_t>{0, 1, 0}));
    write("a,price\n1,low\n2,high\n3,NA\n");
    request.task = "auto";
    set = load_table_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.class_names, (std::vector<std::string>{"high", "low"}));
    EXPECT_EQ(set->part(Part::train).size(), 2u) << "a row without an answer is left out";
    request.task = "regression";
    EXPECT_NE(refusal().find("which is no number"), std::string::npos);
}

TEST_F(TableSet, OtherRowsArePreparedAsTheCheckpointSays) {
    write("area,town,price\n10,Rome,1\n20,Paris,2\n30,Rome,3\n");
    const auto trained = load_table_set(request);
    ASSERT_TRUE(trained.ok());
    const auto stored = decode_preparation(encode(trained->preparation), "here");
    ASSERT_TRUE(stored.ok()) << stored.error().text();
    EXPECT_EQ(*stored, trained->preparation) << "to the bit";
    write("price,town,area,more\n5,Oslo,40,x\n");
    request.stored = &*stored;
    const auto set = load_table_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation, *stored);
    EXPECT_NEAR(set->numbers[0], 20 / std::sqrt(200.0 / 3), 1e-6);
    EXPECT_EQ((std::vector<float>(set->numbers.begin() + 1, set->numbers.end())), (std::vector<float>{1, 0, 0})) << "never seen";
    write("price,area\n5,40\n");
    EXPECT_NE(refusal().find("\"town\" is no column"), std::string::npos);
}

TEST_F(TableSet, FilesOfAFolderAreTheParts) {
    request.path = folder / "set";
    std::filesystem::create_directories(request.path);
    const auto put = [&](const char* name, const std::string& text) {
        ASSERT_TRUE(io::write_atomically(request.path / name, text).ok());
    };
    put("train.csv", "a,price\n1,1\n3,2\n");
    put("test.tsv", "price\ta\n9\t100\n");
    const auto set = load_table_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->part(Part::test), (std::vector<std::int32_t>{2}));
    EXPECT_NEAR(set->numbers[2], 98, 1e-4) << "scaled by what is trained on: mean 2, deviation 1";
}

TEST_F(TableSet, WhatIsNoSetIsRefused) {
    write("a,b\n1,2\n");
    EXPECT_NE(refusal().find("\"price\" is no column; there are a, b"), std::string::npos);
    request.target = "";
    EXPECT_NE(refusal().find("data.target names no column"), std::string::npos);
    request.target = "b";
    request.ignore = "a";
    EXPECT_NE(refusal().find("no column beside the answer's"), std::string::npos);
    request.ignore = "nowhere";
    EXPECT_NE(refusal().find("data.ignore"), std::string::npos);
}

TEST(Answers, NumbersAndMissingOnes) {
    EXPECT_EQ(number_of(" +1.5e3 "), 1500);
    for (const char* text : {"", "1,5", "0x10", "1 2", "inf", "nan", "1e999", "12a"}) EXPECT_FALSE(number_of(text)) << text;
    for (const char* text : {"", " ", "NA", "n/a", "NaN", "?", "None"}) EXPECT_TRUE(is_missing(text)) << text;
    for (const char* text : {"0", "no", "-"}) EXPECT_FALSE(is_missing(text)) << text;
}

}  // namespace
}  // namespace millrace::data
