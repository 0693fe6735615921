#include "diagnose/reading/name_table.h"

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

TEST(Demangled, NamesAreThoseOfPyTorchsProfiler) {
    EXPECT_EQ(demangled("_Z5scalePff"), "scale(float*, float)");
    EXPECT_EQ(demangled("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"),
              "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, "
              "at::native::FillFunctor<float>, std::array<char*, 1ul>)");
    for (const char* plain : {"", "ampere_sgemm_128x64_tn", "_Z", "_Zbroken", "_ZN2at"}) EXPECT_EQ(demangled(plain), plain);
    const std::string longest = "_Z" + std::to_string(1020) + std::string(1020, 'a') + "v";
    EXPECT_EQ(demangled(longest), longest);
}

TEST(Demangled, ANameOfGigabytesIsLeftAsItIs) {
    // Each pair has twice what was there before it.
    std::string bomb = "_Z1fI1AIiiE";
    for (int level = 0; level < 60; ++level)
        bomb += "1AIS" + (level == 0 ? std::string() : std::string(1, static_cast<char>('0' + level % 10))) + "_S_E";
    bomb += "Evv";
    EXPECT_EQ(demangled(bomb), bomb);
}

}  // namespace
}  // namespace millrace::diagnose
