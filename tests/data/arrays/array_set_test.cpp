// Arrays: what they become, and what is refused.

#include "data/arrays/array_set.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace millrace::data {
namespace {

/// The bytes of a .npy file.
template <class T>
std::string npy(const char* type, const std::string& shape, const std::vector<T>& values) {
    std::string header = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
    std::string bytes("\x93NUMPY\x01\x00", 8);
    bytes += static_cast<char>(header.size());
    bytes += '\0';
    return bytes + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class ArraySet : public ::testing::Test {
protected:
    void SetUp() override {
        request.path = folder.path();
        request.validation = request.test = 0;
    }
    void write(const std::string& name, const std::string& bytes) const {
        ASSERT_TRUE(io::write_atomically(folder / name, bytes).ok());
    }
    [[nodiscard]] std::string refusal() const {
        const auto set = load_array_set(request);
        EXPECT_FALSE(set.ok());
        return set.ok() ? "" : set.error().text();
    }
    test::TemporaryFolder folder;
    SampleRequest request;
};

TEST_F(ArraySet, BytesOfThreeDimensionsAreImages) {
    write("x.npy", npy<std::uint8_t>("|u1", "2, 1, 3", {0, 51, 102, 153, 204, 255}));
    write("y.npy", npy<std::int32_t>("<i4", "2,", {2, 0}));
    const auto set = load_array_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.shape, (Shape{1, 3, 1}));
    EXPECT_EQ(set->preparation.classes, 3);
    EXPECT_EQ(set->bytes[4], 204);
    EXPECT_FLOAT_EQ(set->preparation.mean[0], 0.5f);
}

TEST_F(ArraySet, OtherNumbersAreVectorsScaledByTheTrainingPart) {
    write("x_train.npy", npy<double>("<f8", "2, 2", {1, 7, 3, 7}));
    write("y_train.npy", npy<float>("<f4", "2,", {10, 30}));
    write("x_test.npy", npy<double>("<f8", "1, 2", {5, 8}));
    write("y_test.npy", npy<float>("<f4", "1,", {50}));
    const auto set = load_array_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->part(Part::test), (std::vector<std::int32_t>{2}));
    EXPECT_EQ(set->numbers, (std::vector<float>{-1, 0, 1, 0, 3, 1})) << "a column without spread is divided by 1";
    ASSERT_TRUE(set->preparation.target.has_value());
    EXPECT_EQ(set->preparation.target->mean, 20);
    EXPECT_EQ(set->targets, (std::vector<float>{-1, 1, 3}));
}

TEST_F(ArraySet, WhatIsNoSetIsRefused) {
    EXPECT_NE(refusal().find("no arrays x and y"), std::string::npos);
    write("x.npy", npy<float>("<f4", "2, 1", {1, 2}));
    EXPECT_NE(refusal().find("2 inputs and 0 answers"), std::string::npos);
    write("y.npy", npy<std::int64_t>("<i8", "3,", {0, 1, 1}));
    EXPECT_NE(refusal().find("2 inputs and 3 answers"), std::string::npos);
    write("y.npy", npy<std::int64_t>("<i8", "2,", {0, -1}));
    EXPECT_NE(refusal().find("the answer -1"), std::string::npos);
    write("y.npy", npy<std::int64_t>("<i8", "2,", {0, 0}));
    EXPECT_NE(refusal().find("two classes at least"), std::string::npos);
}

}  // namespace
}  // namespace millrace::data
