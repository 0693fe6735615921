#include "bench/product_ceiling.h"

#include <gtest/gtest.h>

namespace millrace::bench {
namespace {

TEST(ProductCeiling, IsARateThatGrowsWithTheMatrix) {
    auto backend = ops::make_backend(ops::DeviceKind::cpu, {false, 1}).value();
    const auto small = product_ceiling(*backend, tape::Precision::f32, 4, 0.1);
    const auto large = product_ceiling(*backend, tape::Precision::f32, 256, 0.1);
    ASSERT_TRUE(small.ok()) << small.error().text();
    ASSERT_TRUE(large.ok()) << large.error().text();
    EXPECT_GT(*small, 0);
    EXPECT_GT(*large, 1e8);         // a tenth of a GFLOP/s: any processor
    EXPECT_LT(*large, 1e13);        // and no single core
    EXPECT_GT(*large, 2 * *small);  // 128 FLOP do not pay for a launch
}

TEST(ProductCeiling, OnCudaTensorCoresBeatFullPrecision) {
    auto backend = ops::make_backend(ops::DeviceKind::cuda, {});
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
    const auto half = product_ceiling(**backend, tape::Precision::bf16, 2048, 5);
    const auto full = product_ceiling(**backend, tape::Precision::f32, 2048, 5);
    ASSERT_TRUE(half.ok() && full.ok());
    EXPECT_GT(*half, *full);
}

}  // namespace
}  // namespace millrace::bench
