#include "io/array_file.h"

#include <gtest/gtest.h>

#include "fuzz/array_target.h"
#include "fuzz/table_target.h"
#include "places.h"

namespace millrace::io {
namespace {

const Path kArrays = millrace::testing::source_root() / "tests/fuzz/corpus-array";

std::vector<std::byte> bytes_of_file(const char* name) { return read_file(kArrays / name).value(); }

std::string npy_refusal(const char* name) {
    const auto array = parse_npy(bytes_of_file(name), name);
    EXPECT_FALSE(array.ok()) << name;
    return array.ok() ? "" : array.error().text();
}

TEST(ArrayFile, ElementsOfEveryType) {
    const auto u8 = bytes_of_file("u8.npy"), f8 = bytes_of_file("f8.npy"), i8 = bytes_of_file("i8.npy"),
               i4 = bytes_of_file("i4.npy");
    const auto image = parse_npy(u8, "x");
    ASSERT_TRUE(image.ok()) << image.error().text();
    EXPECT_EQ(image->shape, (std::vector<std::uint64_t>{2, 3, 4}));
    EXPECT_EQ(image->at(23), 23);
    EXPECT_EQ(parse_npy(f8, "x")->at(3), 0.25);
    EXPECT_EQ(parse_npy(i8, "x")->at(0), 1099511627776.0);
    EXPECT_EQ(parse_npy(i4, "x")->at(4), -4);
    EXPECT_EQ(parse_npy(bytes_of_file("none.npy"), "x")->count(), 0u);
}

TEST(ArrayFile, DamageIsRefused) {
    EXPECT_NE(npy_refusal("fortran.npy").find("column-major"), std::string::npos);
    EXPECT_NE(npy_refusal("big-endian.npy").find("'>f4'"), std::string::npos);
    EXPECT_NE(npy_refusal("objects.npy").find("'|O'"), std::string::npos);
    EXPECT_NE(npy_refusal("lying.npy").find("1 bytes follow"), std::string::npos);
    EXPECT_NE(npy_refusal("overflow.npy").find("0 bytes follow"), std::string::npos);
    EXPECT_NE(npy_refusal("cut.npy").find("truncated"), std::string::npos);
}

TEST(ArrayFile, AFileIsReadPartByPart) {
    for (const char* name : {"u8.npy", "f8.npy", "i8.npy", "i4.npy", "none.npy"}) {
        const auto bytes = bytes_of_file(name);
        const auto whole = parse_npy(bytes, name), file = open_npy(kArrays / name);
        ASSERT_TRUE(file.ok()) << file.error().text();
        EXPECT_TRUE(file->values.empty()) << "elements stay in the file";
        ASSERT_EQ(file->count(), whole->count());
        std::vector<std::byte> memory, none;
        for (std::uint64_t i = 0; i + 1 < file->count(); ++i)
            for (const std::uint64_t count : {1, 2}) {
                const auto part = file->part(i, count, memory), same = whole->part(i, count, none);
                ASSERT_TRUE(part.ok() && same.ok());
                EXPECT_EQ(part->count(), count);
                EXPECT_EQ(part->at(count - 1), whole->at(i + count - 1)) << name << " " << i;
                EXPECT_EQ(same->at(0), part->at(0));
            }
    }
    for (const char* name :
         {"fortran.npy", "big-endian.npy", "objects.npy", "lying.npy", "overflow.npy", "cut.npy", "stored.npz"}) {
        const auto refused = open_npy(kArrays / name);
        ASSERT_FALSE(refused.ok()) << name;
        EXPECT_NE(refused.error().text().find(name), std::string::npos) << refused.error().text();
    }
    EXPECT_FALSE(open_npy(kArrays).ok()) << "a folder";
}

TEST(ArrayFile, ArchivesStoredAndPacked) {
    for (const char* name : {"stored.npz", "packed.npz"}) {
        const auto members = parse_npz(bytes_of_file(name), name, 1 << 20);
        ASSERT_TRUE(members.ok()) << members.error().text();
        ASSERT_EQ(members->size(), 2u);
        const auto y = parse_npy(members->at("y"), name);
        ASSERT_TRUE(y.ok());
        EXPECT_EQ(y->at(2), 1);
        EXPECT_TRUE(parse_npy(members->at("x"), name).ok());
    }
    for (const char* name : {"cut.npz", "claims-more.npz", "far.npz", "u8.npy"})
        EXPECT_FALSE(parse_npz(bytes_of_file(name), name, std::uint64_t{1} << 40).ok()) << name;
    const auto bomb = parse_npz(bytes_of_file("bomb.npz"), "bomb", 1 << 20);
    ASSERT_FALSE(bomb.ok());
    EXPECT_NE(bomb.error().message.find("more than 1048576 bytes"), std::string::npos);
}

TEST(ArrayFile, CorpusIsReadWithoutABrokenPromise) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kArrays)) {
        fuzz::read_array_bytes(read_text(entry.path()).value());
        ++inputs;
    }
    for (const auto& entry : std::filesystem::directory_iterator(millrace::testing::source_root() / "tests/fuzz/corpus-table")) {
        fuzz::read_table_bytes(read_text(entry.path()).value());
        ++inputs;
    }
    EXPECT_GE(inputs, 26u);
}

}  // namespace
}  // namespace millrace::io
