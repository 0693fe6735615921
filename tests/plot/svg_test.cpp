#include "plot/svg.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace::plot {
namespace {

TEST(Svg, HostileTextIsMadeHarmless) {
    EXPECT_EQ(xml_text("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
    EXPECT_EQ(xml_text(std::string("a\0b\x1b[31m\n", 9)), "a b [31m ");
    EXPECT_EQ(xml_text("\xff\xc3(\xed\xa0\x80\xc3"), std::string(2, '?') + "(" + std::string(4, '?'));
    EXPECT_EQ(xml_text("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    EXPECT_EQ(xml_text("\xef\xbf\xbf"), std::string(3, '?'));
}

TEST(Svg, AxisStepsAreRound) {
    EXPECT_EQ(axis_step(100), 20);
    EXPECT_EQ(axis_step(300), 100);
    EXPECT_EQ(axis_step(700), 200);
    EXPECT_EQ(axis_step(0), 1);
    EXPECT_EQ(axis_step(std::numeric_limits<double>::infinity()), 1);
}

TEST(Svg, CoordinatesHaveOneDecimalAtMost) {
    EXPECT_EQ(short_number(12), "12");
    EXPECT_EQ(short_number(12.34), "12.3");
    EXPECT_EQ(short_number(-0.01), "0");
    EXPECT_EQ(text_at(1.5, 2, "axis", "end", "a<b"), "<text x=\"1.5\" y=\"2\" class=\"axis\" text-anchor=\"end\">a&lt;b</text>");
}

TEST(Svg, DocumentsCarryTheirRulesForBothSchemes) {
    const std::string svg = svg_begin("a & b", 10, 20.5, ".mine{fill:red}", ".mine{fill:blue}");
    EXPECT_NE(svg.find("viewBox=\"0 0 10 20.5\""), std::string::npos);
    EXPECT_NE(svg.find("<title>a &amp; b</title>"), std::string::npos);
    const auto dark = svg.find("prefers-color-scheme:dark");
    EXPECT_LT(svg.find(".mine{fill:red}"), dark);
    EXPECT_GT(svg.find(".mine{fill:blue}"), dark);
    EXPECT_NE(svg.find(".mine{fill:blue}"), std::string::npos);
}

}  // namespace
}  // namespace millrace::plot
