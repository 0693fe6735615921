#include "io/line_file.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

TEST(LineSplitter, PiecesMakeNoDifference) {
    const std::string text = "first\n\nthird line\n" + std::string(50, 'x') + "\nfifth\ntorn";
    for (const std::size_t piece : {1u, 2u, 3u, 7u, 64u, 1000u}) {
        std::vector<std::string> lines;
        LineSplitter splitter(20, [&](std::string_view line) { lines.emplace_back(line); });
        for (std::size_t at = 0; at < text.size(); at += piece) splitter.feed(std::string_view(text).substr(at, piece));
        EXPECT_EQ(lines, (std::vector<std::string>{"first", "", "third line", "fifth"})) << piece;
        EXPECT_EQ(splitter.too_long(), 1u);
        EXPECT_TRUE(splitter.torn());
        splitter.feed("\n");
        EXPECT_EQ(lines.back(), "torn");
        EXPECT_FALSE(splitter.torn());
    }
}

TEST(LineSplitter, ALineOfExactlyTheCapIsWhole) {
    int whole = 0;
    LineSplitter splitter(4, [&](std::string_view) { ++whole; });
    splitter.feed("1234\n12345\n");
    splitter.feed("12");
    splitter.feed("34\n123");
    splitter.feed("45\n");
    EXPECT_EQ(whole, 2);
    EXPECT_EQ(splitter.too_long(), 2u);
    splitter.feed("12345");
    EXPECT_TRUE(splitter.torn());
}

}  // namespace
}  // namespace millrace::io
