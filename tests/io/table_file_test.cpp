#include "io/table_file.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

std::string refusal(const std::string& text) {
    const auto table = parse_table(text, ',', "t.csv");
    EXPECT_FALSE(table.ok()) << text;
    return table.ok() ? "" : table.error().text();
}

TEST(TableFile, CellsQuotesAndLineEnds) {
    auto parsed = parse_table(
        "\xef\xbb\xbf"
        "a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n\r\n,\n3,last",
        ',', "t.csv");
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    const TextTable table = std::move(parsed).value();  // moved: cells stay valid
    EXPECT_EQ(table.names, (std::vector<std::string>{"a", "b"}));
    ASSERT_EQ(table.rows(), 3u);
    EXPECT_EQ(table.at(0, 0), "1");
    EXPECT_EQ(table.at(0, 1), "x, \"y\"\nz");
    EXPECT_EQ(table.at(1, 0), "");
    EXPECT_EQ(table.at(1, 1), "");
    EXPECT_EQ(table.at(2, 1), "last");
    const auto tabs = parse_table("a\tb\n1,5\t\n", '\t', "t.tsv");
    ASSERT_TRUE(tabs.ok());
    EXPECT_EQ(tabs->at(0, 0), "1,5");
    EXPECT_EQ(tabs->at(0, 1), "");
}

TEST(TableFile, DamageIsRefusedWithItsLine) {
    EXPECT_NE(refusal("").find("without rows"), std::string::npos);
    EXPECT_NE(refusal("a,b\n").find("without rows"), std::string::npos);
    EXPECT_NE(refusal("a,b\n1,2\n\n1,2,3\n").find("t.csv:4: has 3 cells"), std::string::npos);
    EXPECT_NE(refusal("a,a\n1,2\n").find("two columns \"a\""), std::string::npos);
    EXPECT_NE(refusal("a,\n1,2\n").find("without a name"), std::string::npos);
    EXPECT_NE(refusal("a\n\"x").find("t.csv:2: has a cell whose quotes do not end"), std::string::npos);
    EXPECT_NE(refusal("a\n\"x\"y\n").find("text behind them"), std::string::npos);
}

}  // namespace
}  // namespace millrace::io
