#include "ops/peak.h"

#include <gtest/gtest.h>

namespace millrace::ops {
namespace {

TEST(Peak, KnownChipsHaveTheirDataSheets) {
    const Chip h200{"NVIDIA H200", 9, 0, 132, 1.98e9};
    EXPECT_DOUBLE_EQ(*peak_flops(h200, tensor::DType::bf16), 989.4e12);
    EXPECT_DOUBLE_EQ(*peak_flops(h200, tensor::DType::f16), 989.4e12);
    EXPECT_DOUBLE_EQ(*peak_flops(h200, tensor::DType::f32), 66.9e12);
    EXPECT_DOUBLE_EQ(*peak_flops({"NVIDIA H100 PCIe", 9, 0, 114, 1.755e9}, tensor::DType::bf16), 756e12);
}

TEST(Peak, OthersFollowFromTheirMultiprocessors) {
    const Chip laptop{"NVIDIA GeForce RTX 4050 Laptop GPU", 8, 9, 20, 2.0e9};
    EXPECT_DOUBLE_EQ(*peak_flops(laptop, tensor::DType::bf16), 512 * 20 * 2.0e9);
    EXPECT_DOUBLE_EQ(*peak_flops(laptop, tensor::DType::f32), 256 * 20 * 2.0e9);
    // A namesake with fewer multiprocessors must not get the desktop card's figure.
    const Chip mobile{"NVIDIA GeForce RTX 4090 Laptop GPU", 8, 9, 76, 2.0e9};
    EXPECT_DOUBLE_EQ(*peak_flops(mobile, tensor::DType::f32), 256 * 76 * 2.0e9);
}

TEST(Peak, WhatNobodyPromisesIsAbsent) {
    EXPECT_FALSE(peak_flops({"NVIDIA T4", 7, 5, 40, 1.59e9}, tensor::DType::bf16).has_value());
    EXPECT_DOUBLE_EQ(*peak_flops({"NVIDIA T4", 7, 5, 40, 1.59e9}, tensor::DType::f16), 1024 * 40 * 1.59e9);
    EXPECT_FALSE(peak_flops({"Something new", 99, 0, 10, 1e9}, tensor::DType::f32).has_value());
    EXPECT_FALSE(peak_flops({"NVIDIA H200", 9, 0, 132, 1.98e9}, tensor::DType::f64).has_value());
    EXPECT_FALSE(peak_flops({"Unknown clock", 9, 0, 132, 0}, tensor::DType::f32).has_value());
}

}  // namespace
}  // namespace millrace::ops
