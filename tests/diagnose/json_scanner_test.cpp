#include "diagnose/reading/json_scanner.h"

#include <gtest/gtest.h>

#include "text_source.h"

namespace millrace::diagnose {
namespace {

/// Everything the scanner finds in `text`, written as one line: what a walk over all values sees.
void describe(JsonScanner& scanner, std::string& out) {
    switch (scanner.peek()) {
        case JsonScanner::Kind::kObject: {
            out += '{';
            scanner.enter_object();
            std::string_view key;
            while (scanner.next_key(key)) {
                out += std::string(key) + ':';
                describe(scanner, out);
            }
            out += '}';
            break;
        }
        case JsonScanner::Kind::kArray:
            out += '[';
            scanner.enter_array();
            while (scanner.next_element()) describe(scanner, out);
            out += ']';
            break;
        case JsonScanner::Kind::kText: out += '<' + std::string(scanner.text()) + '>'; break;
        case JsonScanner::Kind::kNumber: out += std::string(scanner.number()) + ' '; break;
        case JsonScanner::Kind::kTrue:
        case JsonScanner::Kind::kFalse:
        case JsonScanner::Kind::kNull:
            out += "w ";
            scanner.skip();
            break;
        case JsonScanner::Kind::kNothing: out += "! "; break;
    }
}

std::string walk(std::string_view text, std::size_t piece = 1 << 20) {
    test::TextSource source(text, piece);
    JsonScanner scanner(source);
    std::string out;
    describe(scanner, out);
    scanner.at_end();
    if (scanner.failed()) out += " " + scanner.problem();
    return out;
}

constexpr std::string_view kEverything =
    R"( { "a" : [ 1, -2.5e3 , "x\n\"y\" \u00e9\ud83d\ude00" , true,false , null ,NaN, -Infinity ], "b":{}, "c" : [] ,"d":"" } )";

TEST(JsonScanner, ValuesOfEveryKindAreFound) {
    EXPECT_EQ(walk(kEverything), "{a:[1 -2.5e3 <x\n\"y\" \xc3\xa9\xf0\x9f\x98\x80>w w w NaN -Infinity ]b:{}c:[]d:<>}");
}

TEST(JsonScanner, PiecesOfAnySizeGiveTheSame) {
    const std::string whole = walk(kEverything);
    for (std::size_t piece = 1; piece < kEverything.size(); ++piece) ASSERT_EQ(walk(kEverything, piece), whole) << piece;
}

TEST(JsonScanner, EveryPrefixIsTornAndNeverBroken) {
    const std::string_view text = kEverything.substr(0, kEverything.rfind('}') + 1);
    for (std::size_t length = 0; length < text.size(); ++length) {
        test::TextSource source(text.substr(0, length), 3);
        JsonScanner scanner(source);
        std::string out;
        describe(scanner, out);
        ASSERT_TRUE(scanner.failed()) << length;
        ASSERT_TRUE(scanner.torn()) << length << ": " << scanner.problem();
    }
}

TEST(JsonScanner, SkippingEveryPrefixEndsTorn) {
    const std::string_view text = kEverything.substr(0, kEverything.rfind('}') + 1);
    for (std::size_t length = 0; length < text.size(); ++length) {
        test::TextSource source(text.substr(0, length), 2);
        JsonScanner scanner(source);
        scanner.skip();
        ASSERT_TRUE(scanner.torn()) << length << ": " << scanner.problem();
    }
    test::TextSource source(text, 2);
    JsonScanner scanner(source);
    scanner.skip();
    EXPECT_TRUE(scanner.at_end());
}

TEST(JsonScanner, WhatIsNoJsonIsBrokenWithTheReason) {
    EXPECT_EQ(walk("<html>"), "!  '<' stands where a value should");
    EXPECT_EQ(walk("{\"a\" 1}"), "{} '1' stands where ':' should");
    EXPECT_EQ(walk("{\"a\":1 \"b\":2}"), "{a:1 } '\"' stands where ',' or '}' should");
    EXPECT_EQ(walk("{1:2}"), "{} '1' stands where a key should");
    EXPECT_EQ(walk("[1}"), "[1 ] '}' stands where ',' or ']' should");
    EXPECT_EQ(walk("{} x"), "{} goes on with 'x' behind its end");
    EXPECT_EQ(walk("[nothing]"), "[w ] 'nothing' is no value");
    EXPECT_EQ(walk(std::string_view("\0", 1)), "!  byte 0x00 stands where a value should");
}

TEST(JsonScanner, DepthIsBoundedEnteredAndSkipped) {
    const std::string deep(100'000, '[');
    test::TextSource source(deep);
    JsonScanner scanner(source);
    scanner.skip();
    EXPECT_TRUE(scanner.failed());
    EXPECT_FALSE(scanner.torn());
    EXPECT_NE(walk(deep).find("256 brackets"), std::string::npos);
    const std::string fits = std::string(256, '[') + std::string(256, ']');
    EXPECT_EQ(walk(fits), fits);
}

TEST(JsonScanner, LongTextsAreCutAndLongNumbersRefused) {
    const std::string longer(5 * JsonScanner::kTextCap, 'x');
    for (const std::string& text : {"[\"" + longer + "\",7]", "[\"\\t" + longer + "\",7]"}) {
        test::TextSource source(text, 1000);
        JsonScanner scanner(source);
        ASSERT_TRUE(scanner.enter_array() && scanner.next_element());
        EXPECT_EQ(scanner.text().size(), JsonScanner::kTextCap);
        ASSERT_TRUE(scanner.next_element());
        EXPECT_EQ(scanner.number(), "7");
    }
    EXPECT_NE(walk("[" + std::string(100'000, '9') + "]").find("number of more than 512"), std::string::npos);
}

TEST(JsonScanner, BrokenEscapesAreTakenAsTheyStand) {
    EXPECT_EQ(walk(R"(["\x\q\/\\"])"), R"([<xq/\>])");
    EXPECT_EQ(walk(R"(["\ud800"])"), "[<\xef\xbf\xbd>]");
    EXPECT_EQ(walk(R"(["\ud800\u0041"])"),
              "[<\xef\xbf\xbd"
              "A>]");
    EXPECT_EQ(walk(R"(["\u12"])"),
              "[<\xef\xbf\xbd"
              "12>]");
}

TEST(JsonScanner, ValuesOfAnotherKindArePassedOver) {
    test::TextSource source(R"([{"a":[1,"]"]},5,"t",[2],null,9])");
    JsonScanner scanner(source);
    ASSERT_TRUE(scanner.enter_array());
    ASSERT_TRUE(scanner.next_element());
    EXPECT_EQ(scanner.text(), "");
    ASSERT_TRUE(scanner.next_element());
    EXPECT_EQ(scanner.text(), "");
    ASSERT_TRUE(scanner.next_element());
    EXPECT_FALSE(scanner.enter_object());
    ASSERT_TRUE(scanner.next_element());
    EXPECT_EQ(scanner.number(), "");
    ASSERT_TRUE(scanner.next_element());
    EXPECT_EQ(scanner.number(), "");
    ASSERT_TRUE(scanner.next_element());
    EXPECT_EQ(scanner.number(), "9");
    EXPECT_FALSE(scanner.next_element());
    EXPECT_TRUE(scanner.at_end());
}

}  // namespace
}  // namespace millrace::diagnose
