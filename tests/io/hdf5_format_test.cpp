// What is refused before a row is read. Below the interface, so it needs a build with HDF5.

#include "io/hdf5_format.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

TEST(Hdf5Geometry, ShapesBeyondAllFilesAreRefused) {
    const auto said = [](std::vector<std::uint64_t> dims, std::vector<std::uint64_t> chunk = {}) {
        const Hdf5Geometry geometry{.name = "x", .dims = std::move(dims), .element = 4, .chunk = std::move(chunk)};
        const Status checked = geometry.check("evil.h5");
        return checked.ok() ? "" : checked.error().text();
    };
    const auto refused = [&](const std::string& text, std::string_view reason) {
        return text.find(reason) != std::string::npos && text.find("evil.h5") != std::string::npos &&
               text.find("data set 'x'") != std::string::npos;
    };
    constexpr std::uint64_t kMost = ~std::uint64_t{0};
    const std::vector<std::uint64_t> many(33, 1), most_axes(32, 1);
    const std::string_view axes = "needs 1 to 32 axes", file = "is larger than any file", bytes = "must have 1 byte to 4 GiB";
    EXPECT_PRED2(refused, said({}), axes);
    EXPECT_PRED2(refused, said(many), axes);
    EXPECT_EQ(said(most_axes, most_axes), "");

    // 2^62 bytes, products that overflow, also to a small number, and axes behind an empty one.
    EXPECT_EQ(said({(1ull << 60) - 1}), "");
    EXPECT_PRED2(refused, said({1ull << 60}), file);
    EXPECT_PRED2(refused, said({kMost}), file);
    EXPECT_PRED2(refused, said({1ull << 40, 1ull << 40}, {1, 1}), file);
    EXPECT_PRED2(refused, said({1ull << 31, (1ull << 31) + 1, 2}), file);
    EXPECT_EQ(said({0, 3}), "");
    EXPECT_EQ(said({3, 0}, {2, 5}), "");
    EXPECT_PRED2(refused, said({0, kMost, kMost}), file);

    EXPECT_PRED2(refused, said({4, 4}, {2}), "has chunks of 1 axes");
    EXPECT_PRED2(refused, said({4}, {2, 2}), "has chunks of 2 axes");
    EXPECT_PRED2(refused, said({4, 4}, {2, 0}), bytes);
    EXPECT_PRED2(refused, said({1ull << 40, 1}, {1ull << 30, 1}), bytes);
    EXPECT_PRED2(refused, said({4, 4}, {kMost, kMost}), bytes);
    EXPECT_EQ(said({1ull << 40, 1}, {(1ull << 30) - 1, 1}), "");
    EXPECT_EQ(said({4, 4}, {8, 3}), "");  // they may reach over the end
}

}  // namespace
}  // namespace millrace::io
