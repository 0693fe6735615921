#include "plot/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plot/chart.h"

namespace millrace::plot {
namespace {

TEST(Page, LetsItsOwnScriptRunAndLoadsNothing) {
    const std::string page = html_page("a<b", "p{}", {"run()", "c3Vt"}, "<p>{}</p>");
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
    EXPECT_NE(page.find("script-src 'sha256-c3Vt'"), std::string::npos);
    EXPECT_NE(page.find("<title>a&lt;b</title>"), std::string::npos);
    EXPECT_NE(page.find("<style>" + std::string(page_style())), std::string::npos);
    EXPECT_NE(page.find("p{}</style>\n</head>\n<body>\n<p>{}</p><script>run()</script>\n</body>\n</html>\n"), std::string::npos);
}

std::vector<std::string> labels(const Axis& axis) {
    std::vector<std::string> out;
    for (const Axis::Tick& tick : axis.ticks()) out.push_back(tick.label);
    return out;
}

TEST(Axis, HasRoundEndsAndTicks) {
    const double values[] = {0.913, 0.922, std::nan("")};
    const Axis axis = axis_over(values);
    EXPECT_LE(axis.low, 0.913);
    EXPECT_GE(axis.high, 0.922);
    EXPECT_LT(axis.high - axis.low, 0.02);
    EXPECT_EQ(labels({0, 100, false, "%"}), (std::vector<std::string>{"0 %", "20 %", "40 %", "60 %", "80 %", "100 %"}));
    EXPECT_EQ(labels({1e-5, 0.1, true, ""}), (std::vector<std::string>{"1e-05", "0.0001", "0.001", "0.01", "0.1"}));
    EXPECT_EQ(labels({1, 10, true, ""}), (std::vector<std::string>{"1", "2", "5", "10"}));
    EXPECT_DOUBLE_EQ(Axis({1e-4, 1, true, ""}).share(1e-3), 0.25);
    EXPECT_EQ(Axis({2, 4, false, ""}).share(7), 1);
    EXPECT_EQ(labels(time_axis(600)), (std::vector<std::string>{"0 min", "2 min", "4 min", "6 min", "8 min", "10 min"}));
}

TEST(Axis, StandsAnyNumbers) {
    const double huge = std::numeric_limits<double>::max(), least = std::numeric_limits<double>::denorm_min();
    const std::vector<std::vector<double>> cases = {
        {}, {0}, {3}, {-3, -3}, {-huge, huge}, {huge}, {least, huge}, {1e17, 1e17 + 16}, {1, std::nextafter(1.0, 2.0)}};
    for (const auto& values : cases)
        for (const bool is_log : {false, true}) {
            const Axis axis = axis_over(values, is_log);
            EXPECT_LT(axis.low, axis.high);
            EXPECT_LE(axis.ticks().size(), 20u);
            for (const double value : values) {
                EXPECT_GE(axis.share(value), 0);
                EXPECT_LE(axis.share(value), 1);
            }
        }
}

TEST(Chart, EscapesItsTextsAndSaysWhatItShows) {
    const std::string html = html_chart(
        {.title = "a<b", .keys = "<ul></ul>", .drawn = "<path/>", .said = "\"up\"", .x = {}, .y = {}, .x_label = "x&y"});
    EXPECT_NE(html.find("<h3>a&lt;b</h3><ul></ul>"), std::string::npos);
    EXPECT_NE(html.find("aria-label=\"&quot;up&quot;\""), std::string::npos);
    EXPECT_NE(html.find("x&amp;y"), std::string::npos);
    EXPECT_NE(html.find("<path/></svg>"), std::string::npos);
}

}  // namespace
}  // namespace millrace::plot
