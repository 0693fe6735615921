// Arrays: what they become, and what is refused.

#include "data/forms.h"

#include <gtest/gtest.h>

#include "data/inputs_of.h"
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
    EXPECT_EQ(inputs_of<std::uint8_t>(*set)[4], 204);
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
    EXPECT_EQ(inputs_of<float>(*set), (std::vector<float>{-1, 0, 1, 0, 3, 1})) << "a column without spread is divided by 1";
    ASSERT_TRUE(set->preparation.target.has_value());
    EXPECT_EQ(set->preparation.target->mean, 20);
    EXPECT_EQ(set->targets, (std::vector<float>{-1, 1, 3}));
}

TEST_F(ArraySet, FilesAreReadWhileTheyAreUsedAndACutOneIsNamed) {
    write("x_train.npy", npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6}));
    write("y_train.npy", npy<float>("<f4", "3,", {1, 2, 3}));
    write("x_test.npy", npy<float>("<f4", "2, 2", {7, 8, 9, 10}));
    write("y_test.npy", npy<float>("<f4", "2,", {4, 5}));
    const auto set = load_array_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_TRUE(set->numbers.empty()) << "nothing of the inputs is in memory";
    const std::vector<float> all = inputs_of<float>(*set);
    std::vector<float> some(6);  // from one file into the other
    ASSERT_TRUE(set->read(1, std::as_writable_bytes(std::span(some))).ok());
    EXPECT_EQ(some, std::vector<float>(all.begin() + 2, all.begin() + 8));
    std::filesystem::resize_file(folder / "x_test.npy", std::filesystem::file_size(folder / "x_test.npy") - 4);
    const base::Status cut = set->read(3, std::as_writable_bytes(std::span(some).first(4)));
    ASSERT_FALSE(cut.ok());
    EXPECT_NE(cut.error().text().find("x_test.npy"), std::string::npos) << cut.error().text();
}

TEST_F(ArraySet, InputsThatAreNotFiniteAreRefused) {
    write("x.npy", npy<double>("<f8", "2, 1", {1, 1e300}));
    write("y.npy", npy<float>("<f4", "2,", {1, 2}));
    EXPECT_NE(refusal().find("not finite"), std::string::npos) << "1e300 is none as f32";
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
