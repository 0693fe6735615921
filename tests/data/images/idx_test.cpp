#include "data/images/image_set.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "io/packing.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

std::vector<std::byte> file_of(std::vector<std::uint32_t> shape, std::size_t values) {
    std::vector<std::byte> bytes = idx_header(shape);
    for (std::size_t i = 0; i < values; ++i) bytes.push_back(static_cast<std::byte>(i));
    return bytes;
}

std::string refusal(const std::vector<std::byte>& bytes) {
    const auto result = parse_idx(bytes, "set/images");
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.error().place, "set/images");
    EXPECT_EQ(result.error().exit_status, 2);
    return result.ok() ? "" : result.error().message;
}

TEST(Idx, WrittenFileReadsBack) {
    const test::TemporaryFolder folder;
    std::vector<std::uint8_t> values(3 * 5 * 7);
    std::iota(values.begin(), values.end(), std::uint8_t{0});
    ASSERT_TRUE(write_idx(folder / "a", std::array{3u, 5u, 7u}, values).ok());
    const auto array = read_idx(folder / "a");
    ASSERT_TRUE(array.ok()) << array.error().text();
    EXPECT_EQ(array->shape, (std::vector<std::uint32_t>{3, 5, 7}));
    EXPECT_EQ(array->values, values);
}

TEST(Idx, HeaderIsBigEndian) {
    const auto header = idx_header(std::array{60000u});
    const std::vector<std::byte> expected{std::byte{0}, std::byte{0}, std::byte{8},    std::byte{1},
                                          std::byte{0}, std::byte{0}, std::byte{0xea}, std::byte{0x60}};
    EXPECT_EQ(header, expected);
}

TEST(Idx, EmptyArrayIsAccepted) { EXPECT_TRUE(parse_idx(file_of({0}, 0), "x").ok()); }

TEST(Idx, WrongBeginningsAreRefused) {
    auto bytes = file_of({4}, 4);
    bytes[0] = std::byte{1};
    EXPECT_NE(refusal(bytes).find("magic"), std::string::npos);
    bytes = file_of({4}, 4);
    bytes[2] = std::byte{0x0d};
    EXPECT_NE(refusal(bytes).find("0x0d"), std::string::npos);
    bytes = file_of({4}, 4);
    bytes[3] = std::byte{4};
    EXPECT_NE(refusal(bytes).find("4 dimensions"), std::string::npos);
}

TEST(Idx, PackedFilesAreUnpacked) {
    if (!io::have_gzip()) GTEST_SKIP() << "this build unpacks nothing";
    const test::TemporaryFolder folder;
    const auto packed = io::write_atomically(folder / "images.gz", [](io::FileWriter& writer) -> Status {
        const auto gzip = io::pack_gzip(writer);
        MILLRACE_TRY(gzip->write(file_of({2, 3}, 6)));
        return gzip->finish();
    });
    ASSERT_TRUE(packed.ok());
    const auto array = read_idx(folder / "images");
    ASSERT_TRUE(array.ok()) << array.error().text();
    EXPECT_EQ(array->shape, (std::vector<std::uint32_t>{2, 3}));
    EXPECT_EQ(array->values, (std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Idx, LyingHeadersAreRefused) {
    EXPECT_NE(refusal(file_of({5}, 4)).find("truncated"), std::string::npos);
    EXPECT_NE(refusal(file_of({3}, 4)).find("left over"), std::string::npos);
    refusal(file_of({0xffffffffu, 0xffffffffu, 0xffffffffu}, 4));
    refusal(file_of({0x80000000u, 0x80000000u, 4u}, 0));  // the product is 2^64
}

TEST(Idx, EveryTruncationIsRefused) {
    const auto whole = file_of({2, 3, 5}, 30);
    for (std::size_t size = 0; size < whole.size(); ++size)
        refusal({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
}

TEST(Idx, FlippedBytesNeverCrash) {
    const auto whole = file_of({2, 3, 5}, 30);
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
        auto bytes = whole;
        bytes[random() % 16] = static_cast<std::byte>(random());
        const auto result = parse_idx(bytes, "x");
        if (result.ok()) {
            EXPECT_EQ(result->values.size(), 30u);
        }
    }
}

TEST(Idx, MissingFileNamesThePath) {
    const auto result = read_idx("/nowhere/images");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().place, "/nowhere/images");
}

TEST(Idx, FolderInPlaceOfAFileIsRefused) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(read_idx(folder.path()).ok());
}

}  // namespace
}  // namespace millrace::data
