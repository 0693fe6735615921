#include "train/predict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::train {
namespace {

double number(const io::Cell& cell) { return std::get<double>(cell); }

TEST(Answers, MembersProbabilitiesAreAveragedAndTheChosenOneHasASpread) {
    data::Preparation prepared;
    prepared.classes = 2;
    prepared.class_names = {"cat", "dog"};
    const Answers answers(prepared, 2);
    EXPECT_EQ(answers.columns(), (std::vector<std::string>{"class", "p_cat", "p_dog", "spread"}));
    // [2 members, 3 rows, 2 classes]; of row 1 the members say 1/4, 3/4 and 1/2, 1/2.
    const std::vector<double> outputs{9, 9, 0, std::log(3), 9, 9, 9, 9, 1000, 1000, 9, 9};
    const Answer answer = answers.of(outputs, 1);
    ASSERT_EQ(answer.cells.size(), 4u);
    EXPECT_EQ(std::get<std::string>(answer.cells[0]), "dog");
    EXPECT_NEAR(number(answer.cells[1]), 0.375, 1e-12);
    EXPECT_NEAR(number(answer.cells[2]), 0.625, 1e-12);
    EXPECT_NEAR(number(answer.cells[3]), 0.125, 1e-12) << "of 0.75 and 0.5";
    EXPECT_EQ(answer.values, (std::vector<float>{0.375f, 0.625f}));
}

TEST(Answers, NumbersAreInTheirOwnUnit) {
    data::Preparation prepared;
    prepared.target = data::Target{"price", 100, 20};
    const Answer one = Answers(prepared, 1).of(std::vector<double>{0.5, -1}, 1);
    ASSERT_EQ(one.cells.size(), 1u);
    EXPECT_EQ(number(one.cells[0]), 80);
    const Answers three(prepared, 3);
    EXPECT_EQ(three.columns(), (std::vector<std::string>{"price", "spread"}));
    const Answer answer = three.of(std::vector<double>{0, 1, 2}, 0);
    EXPECT_NEAR(number(answer.cells[0]), 120, 1e-12);
    EXPECT_NEAR(number(answer.cells[1]), 20 * std::sqrt(2.0 / 3), 1e-12);
    EXPECT_EQ(answer.values, std::vector<float>{120});
}

TEST(Answers, ClassesWithoutNamesAreNumbersAndManyAreNotListed) {
    data::Preparation prepared;
    prepared.classes = Answers::kMostColumns;
    EXPECT_EQ(Answers(prepared, 1).columns().size(), 1u + Answers::kMostColumns);
    EXPECT_EQ(Answers(prepared, 1).columns().back(), "p_1023");
    prepared.classes += 1;
    const Answers many(prepared, 1);
    EXPECT_EQ(many.columns(), (std::vector<std::string>{"class", "probability"}));
    std::vector<double> scores(Answers::kMostColumns + 1, -1e9);
    scores[1024] = 7;
    const Answer answer = many.of(scores, 0);
    EXPECT_EQ(std::get<std::int64_t>(answer.cells[0]), 1024);
    EXPECT_EQ(number(answer.cells[1]), 1);
    EXPECT_EQ(answer.values.size(), scores.size());
}

TEST(Answers, WhatIsNotFiniteHasNone) {
    data::Preparation prepared;
    prepared.classes = 2;
    const Answers answers(prepared, 1);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(answers.of(std::vector<double>{0, nan}, 0).cells.empty());
    EXPECT_TRUE(answers.of(std::vector<double>{0, HUGE_VAL}, 0).cells.empty());
}

}  // namespace
}  // namespace millrace::train
