#include "models/class_report.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::models {
namespace {

using Numbers = std::vector<std::int32_t>;

ClassReport class_report(const Numbers& labels, const Numbers& predictions, std::int32_t classes) {
    Confusion confusion;
    for (std::size_t i = 0; i < labels.size(); ++i) confusion[{labels[i], predictions[i]}] += 1;
    return models::class_report(std::move(confusion), classes);
}

TEST(ClassReport, ThreeClassesByHand) {
    // confusion: [2 1 0], [0 1 1], [1 0 3]
    const ClassReport report = class_report(Numbers{0, 0, 0, 1, 1, 2, 2, 2, 2}, Numbers{0, 0, 1, 1, 2, 2, 2, 2, 0}, 3);
    EXPECT_EQ(report.confusion, (Confusion{{{0, 0}, 2}, {{0, 1}, 1}, {{1, 1}, 1}, {{1, 2}, 1}, {{2, 0}, 1}, {{2, 2}, 3}}));
    EXPECT_EQ(report.at(1, 0), 0u);
    EXPECT_EQ(report.at(1, 2), 1u);
    EXPECT_EQ(report.samples, 9u);
    EXPECT_EQ(report.correct, 6u);
    EXPECT_DOUBLE_EQ(report.accuracy, 6.0 / 9);
    EXPECT_DOUBLE_EQ(report.classes[0].precision, 2.0 / 3);
    EXPECT_DOUBLE_EQ(report.classes[0].recall, 2.0 / 3);
    EXPECT_DOUBLE_EQ(report.classes[1].precision, 0.5);
    EXPECT_DOUBLE_EQ(report.classes[1].recall, 0.5);
    EXPECT_DOUBLE_EQ(report.classes[2].precision, 0.75);
    EXPECT_DOUBLE_EQ(report.classes[2].recall, 0.75);
    EXPECT_DOUBLE_EQ(report.macro_f1, (2.0 / 3 + 0.5 + 0.75) / 3);
    // c s - sum p t = 54 - (9 + 4 + 16) = 25; s^2 - sum p^2 = s^2 - sum t^2 = 81 - 29 = 52
    EXPECT_DOUBLE_EQ(report.mcc, 25.0 / 52);
}

TEST(ClassReport, TwoClassesAgreeWithTheBinaryFormula) {
    // tp 4, fn 1, fp 2, tn 3
    const ClassReport report = class_report(Numbers{1, 1, 1, 1, 1, 0, 0, 0, 0, 0}, Numbers{1, 1, 1, 1, 0, 1, 1, 0, 0, 0}, 2);
    EXPECT_DOUBLE_EQ(report.classes[1].precision, 4.0 / 6);
    EXPECT_DOUBLE_EQ(report.classes[1].recall, 0.8);
    EXPECT_DOUBLE_EQ(report.classes[1].f1, 8.0 / 11);
    EXPECT_NEAR(report.mcc, (4.0 * 3 - 2.0 * 1) / std::sqrt(6.0 * 5 * 5 * 4), 1e-15);
}

TEST(ClassReport, AbsentClassesCountAsZeroAndLeaveTheMeanAlone) {
    // Class 1 is never predicted, class 2 has no samples, class 3 neither.
    const ClassReport report = class_report(Numbers{0, 0, 1, 1}, Numbers{0, 0, 2, 0}, 4);
    EXPECT_EQ(report.classes[1].precision, 0);
    EXPECT_EQ(report.classes[1].recall, 0);
    EXPECT_EQ(report.classes[2].recall, 0);
    EXPECT_EQ(report.classes[3].f1, 0);
    EXPECT_DOUBLE_EQ(report.classes[0].f1, 0.8);
    EXPECT_DOUBLE_EQ(report.macro_f1, 0.8 / 3) << "classes 0, 1 and 2";
}

TEST(ClassReport, OneClassAlone) {
    for (const std::int32_t classes : {1, 3}) {
        const ClassReport report = class_report(Numbers{0, 0, 0}, Numbers{0, 0, 0}, classes);
        EXPECT_EQ(report.accuracy, 1);
        EXPECT_EQ(report.macro_f1, 1);
        EXPECT_EQ(report.mcc, 0) << "nothing to tell apart";
    }
    EXPECT_EQ(class_report(Numbers{0, 1, 1}, Numbers{1, 1, 1}, 2).mcc, 0) << "one prediction for all";
}

TEST(ClassReport, NoRows) {
    const ClassReport report = class_report({}, {}, 2);
    EXPECT_EQ(report.accuracy, 0);
    EXPECT_EQ(report.macro_f1, 0);
    EXPECT_EQ(report.mcc, 0);
}

TEST(ClassReport, TableHasNamesDashesAndTheMatrix) {
    const ClassReport report = class_report(Numbers{0, 0, 1, 1}, Numbers{0, 0, 1, 0}, 3);
    EXPECT_EQ(class_table(report, {"Coat", "Bag", "Hat"}),
              "class       precision   recall       F1   samples  predicted\n"
              "0 Coat         0.6667   1.0000   0.8000         2          3\n"
              "1 Bag          1.0000   0.5000   0.6667         2          1\n"
              "2 Hat               -        -        -         0          0\n"
              "macro mean                       0.7333\n"
              "MCC                              0.5774\n"
              "label       predicted as\n"
              "            0  1  2\n"
              "0 Coat      2  0  0\n"
              "1 Bag       1  1  0\n"
              "2 Hat       0  0  0\n");
    EXPECT_NE(class_table(report).find("\n2                   -"), std::string::npos) << class_table(report);
    EXPECT_NE(class_table(class_report(Numbers{32}, Numbers{32}, 33)).find("too wide"), std::string::npos);
}

TEST(ClassReport, OfSixtyFiveThousandClassesHoldsThePairsThatOccur) {
    const ClassReport report = class_report(Numbers{65535, 65535, 0, 7}, Numbers{65535, 0, 65535, 7}, 65536);
    EXPECT_EQ(report.confusion.size(), 4u);
    EXPECT_EQ(report.at(65535, 0), 1u);
    EXPECT_EQ(report.classes[65535].recall, 0.5);
    EXPECT_EQ(report.accuracy, 0.5);
}

TEST(ClassReport, MostConfusedAreTheWrongPairsByTheirCount) {
    const ClassReport report = class_report(Numbers{0, 0, 1, 1, 2, 2, 2}, Numbers{1, 0, 2, 2, 0, 2, 2}, 3);
    using Pairs = std::vector<std::pair<Confusion::key_type, std::uint64_t>>;
    EXPECT_EQ(most_confused(report, 2), (Pairs{{{1, 2}, 2}, {{0, 1}, 1}}));
    EXPECT_EQ(most_confused(report, 9).size(), 3u);
    EXPECT_TRUE(most_confused(class_report({0}, {0}, 1), 9).empty());
}

TEST(ClassReportDeathTest, NumbersBeyondTheClassesAbort) {
    EXPECT_DEATH(class_report(Numbers{2}, Numbers{0}, 2), "no such class");
    EXPECT_DEATH(class_report(Numbers{0}, Numbers{-1}, 2), "no such class");
}

}  // namespace
}  // namespace millrace::models
