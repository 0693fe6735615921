#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::base {
namespace {

TEST(Utf8, WellFormedTextHasNoBrokenByte) {
    for (const std::string& text :
         {std::string(), std::string("plain"), std::string("a\0b", 3), std::string("\xc3\xa4\xe6\xb0\xb4"),
          std::string("\xef\xbf\xbf"), std::string("\xf4\x8f\xbf\xbf"), std::string("\xed\x9f\xbf")})
        EXPECT_EQ(find_broken_utf8(text), std::string::npos) << text;
}

TEST(Utf8, TheFirstBrokenByteIsFound) {
    // A lone continuation, overlong forms, surrogates, beyond U+10FFFF, cut off, impossible bytes.
    for (const char* broken : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                               "\xf4\x90\x80\x80", "\xe6\xb0", "\xc3", "\xff", "\xfe", "\xf5\x80\x80\x80", "\xc3(", "\xe6(\xb4"})
        EXPECT_EQ(find_broken_utf8("a\xc3\xa4" + std::string(broken)), 3u);
}

}  // namespace
}  // namespace millrace::base
