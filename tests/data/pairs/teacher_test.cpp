#include "data/pairs/teacher.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace millrace::data {
namespace {

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(Teacher, VectorsHaveLengthOneWhateverTheirWidth) {
    for (const std::uint32_t dimensions : {1u, 2u, 7u, 768u, 16'384u}) {
        const auto vector = teach("Rain", dimensions);
        if (dimensions < 7 && !vector.ok()) continue;  // the signs of eight entries may cancel
        ASSERT_TRUE(vector.ok()) << dimensions << ": " << vector.error().text();
        ASSERT_EQ(vector->size(), dimensions);
        EXPECT_NEAR(cosine(*vector, *vector), 1, 1e-6) << dimensions;
    }
}

TEST(Teacher, FormulaIsTheWrittenOne) {
    // One word, by hand from the header's formula.
    std::uint64_t hash = 14695981039346656037u ^ 0x6d696c6c72616365u;
    for (const char c : std::string_view("rain")) hash = (hash ^ static_cast<std::uint64_t>(c)) * 1099511628211u;
    std::vector<double> sums(101, 0.0);
    for (std::uint64_t j = 1; j <= 8; ++j) {
        std::uint64_t z = hash + j * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        sums[static_cast<std::size_t>((z >> 32) * 101 / 4294967296u)] += z % 2 == 0 ? 2 : -2;
    }
    const double length = std::sqrt(std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0));
    const auto vector = teach("rain", 101).value();
    for (std::size_t i = 0; i < 101; ++i) EXPECT_EQ(vector[i], static_cast<float>(sums[i] / length)) << i;
}

TEST(Teacher, CasePunctuationAndRepetitionDoNotMatter) {
    const auto plain = teach("the dogs bark", 768).value();
    EXPECT_EQ(teach("The DOGS, bark!", 768).value(), plain);
    EXPECT_EQ(teach("  the\tdog's  bark...", 768).value(), plain);
    EXPECT_EQ(teach("the dogs bark the dogs bark the dogs", 768).value(), teach("dogs bark the dogs bark the dogs", 768).value());
    EXPECT_NE(teach("the dogs barked", 768).value(), plain);
}

TEST(Teacher, OrderMattersLessThanWords) {
    const auto text = teach("the cat saw a dog", 768).value();
    const double turned = cosine(text, teach("a dog saw the cat", 768).value());
    const double other = cosine(text, teach("my uncle sold many books", 768).value());
    EXPECT_LT(turned, 0.99);
    EXPECT_GT(turned, 0.7);
    EXPECT_LT(std::abs(other), 0.25);
}

TEST(Teacher, OtherScriptsAreWords) {
    EXPECT_NE(teach("\xC3\xA4", 64).value(), teach("\xC3\xB6", 64).value());
    EXPECT_EQ(teach("\xC3\xA4!", 64).value(), teach("\xC3\xA4", 64).value());
}

TEST(Teacher, TextsWithoutWordsAndBadWidthsAreRefused) {
    for (const char* text : {"", " ", "...", "'''", "\n\t-"}) EXPECT_FALSE(teach(text, 768).ok()) << text;
    for (const std::uint32_t dimensions : {0u, 16'385u, 4'000'000'000u}) {
        const auto vector = teach("rain", dimensions);
        ASSERT_FALSE(vector.ok());
        EXPECT_NE(vector.error().message.find("16384"), std::string::npos);
    }
}

}  // namespace
}  // namespace millrace::data
