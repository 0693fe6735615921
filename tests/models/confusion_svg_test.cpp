#include "models/class_report.h"

#include <gtest/gtest.h>

#include "report/svg_text.h"

namespace millrace::models {
namespace {

using report::count_of;

/// Every class c has c + 1 rows that are right and, of `wrong`, one that is taken for the next class.
ClassReport report_of(std::int32_t classes, std::int32_t wrong) {
    Confusion confusion;
    for (std::int32_t c = 0; c < classes; ++c) {
        confusion[{c, c}] = static_cast<std::uint64_t>(c) + 1;
        if (c < wrong) confusion[{c, (c + 1) % classes}] += 1;
    }
    return models::class_report(std::move(confusion), classes);
}

std::string picture_of(const ClassReport& report, const std::vector<std::string>& names = {}) {
    const std::string svg = confusion_svg(report, names, "9 images of test, best weights");
    EXPECT_TRUE(report::is_balanced(svg)) << svg;
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_LT(svg.size(), 1u << 20);
    return svg;
}

TEST(ConfusionSvg, TwoClassesHaveNamesAndCounts) {
    // Of four cats three are taken for dogs; of five dogs none.
    const std::string svg = picture_of(models::class_report({{{0, 0}, 1}, {{0, 1}, 3}, {{1, 1}, 5}}, 2), {"cat", "dog"});
    EXPECT_EQ(count_of(svg, ">cat</text>"), 2u);
    EXPECT_EQ(count_of(svg, ">dog</text>"), 2u);
    EXPECT_NE(svg.find("9 images of test, best weights; accuracy 66.67 %"), std::string::npos);
    for (const char* count : {">1</text>", ">3</text>", ">5</text>"}) EXPECT_EQ(count_of(svg, count), 1u) << count;
    EXPECT_EQ(count_of(svg, ">0</text>"), 0u) << "empty cells stay empty";
    EXPECT_NE(svg.find("class=\"right\" fill-opacity=\"0.30\""), std::string::npos) << "a quarter of the cats";
    EXPECT_NE(svg.find("class=\"wrong\" fill-opacity=\"0.80\""), std::string::npos);
    EXPECT_NE(svg.find("class=\"right\" fill-opacity=\"1.00\""), std::string::npos);
}

TEST(ConfusionSvg, OneClassIsACell) {
    const std::string svg = picture_of(report_of(1, 0), {"only"});
    EXPECT_EQ(count_of(svg, "<path"), 1u);
    EXPECT_NE(svg.find(">only</text>"), std::string::npos);
}

TEST(ConfusionSvg, HostileNamesAreText) {
    const std::string svg = picture_of(report_of(2, 1), {"</text><script>alert(1)</script>", "\"&\xff\n]]>"});
    EXPECT_EQ(svg.find("<script"), std::string::npos);
    EXPECT_NE(svg.find("&lt;/text&gt;&lt;scrip"), std::string::npos) << svg;
    EXPECT_NE(svg.find("&quot;&amp;? ]]&gt;"), std::string::npos) << svg;
}

TEST(ConfusionSvg, AboveTwentyClassesNumbersGiveWayToAList) {
    EXPECT_EQ(picture_of(report_of(20, 5)).find("Most frequent"), std::string::npos);
    const std::string svg = picture_of(report_of(21, 5));
    EXPECT_EQ(count_of(svg, "class=\"count\"") + count_of(svg, "class=\"on\""), 0u);
    EXPECT_NE(svg.find("Most frequent confusions"), std::string::npos);
    EXPECT_NE(svg.find(">0 taken for 1</text>"), std::string::npos);
    EXPECT_NE(svg.find(">1 of 2 (50.0 %)</text>"), std::string::npos);
    EXPECT_EQ(count_of(svg, "taken for"), 5u);
    EXPECT_NE(picture_of(report_of(21, 0)).find("No row was taken for another class"), std::string::npos);
}

TEST(ConfusionSvg, ManyClassesShareCells) {
    for (const std::int32_t classes : {41, 129, 1000, 1024}) {
        const std::string svg = picture_of(report_of(classes, classes));
        EXPECT_EQ(svg.find("a cell is 8 x 8 classes") != std::string::npos, classes >= 1000) << classes;
        EXPECT_EQ(count_of(svg, "taken for"), 20u);
    }
}

TEST(ConfusionSvg, AboveAThousandClassesTheListIsAll) {
    for (const std::int32_t classes : {1025, 2000, 65536}) {
        const std::string svg = picture_of(report_of(classes, 3));
        EXPECT_EQ(count_of(svg, "<path"), 0u);
        EXPECT_EQ(count_of(svg, "taken for"), 3u);
    }
}

}  // namespace
}  // namespace millrace::models
