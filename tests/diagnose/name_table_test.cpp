#include "diagnose/name_table.h"

#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

TEST(CleanText, WhatDrivesATerminalOrTurnsTheDirectionBecomesABlank) {
    EXPECT_EQ(clean_text("a\033[2Jb\x7f\n"), "a [2Jb  ");
    EXPECT_EQ(clean_text("a\u009b2Jb\u0080"), "a 2Jb ");
    EXPECT_EQ(clean_text("a\u202ayp\u202e.\u2066x\u2069"), "a yp . x ");
    EXPECT_EQ(clean_text("größe \u00a0\u2029\u202f\u2065 語"), "größe \u00a0\u2029\u202f\u2065 語");
    EXPECT_EQ(clean_text("cut\xc2"), "cut\xef\xbf\xbd");
    EXPECT_EQ(clean_text(""), "");
}

}  // namespace
}  // namespace millrace::diagnose
