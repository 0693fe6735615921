#include "base/orthonormal.h"

#include <gtest/gtest.h>

namespace millrace::base {
namespace {

/// Largest entry of A^T A - 1 (tall) or A A^T - 1 (wide).
double defect(const std::vector<float>& a, int rows, int cols) {
    double worst = 0;
    const int count = std::min(rows, cols), length = std::max(rows, cols);
    const auto at = [&](int vector, int i) {
        return static_cast<double>(rows >= cols ? a[static_cast<std::size_t>(i * cols + vector)]
                                                : a[static_cast<std::size_t>(vector * cols + i)]);
    };
    for (int i = 0; i < count; ++i)
        for (int j = 0; j <= i; ++j) {
            double sum = 0;
            for (int k = 0; k < length; ++k) sum += at(i, k) * at(j, k);
            worst = std::max(worst, std::abs(sum - (i == j ? 1 : 0)));
        }
    return worst;
}

TEST(Orthonormal, ColumnsOrRowsAreOrthonormal) {
    for (const auto& [rows, cols] : {std::pair{1, 1}, {7, 7}, {53, 11}, {11, 53}, {400, 96}})
        EXPECT_LT(defect(random_orthonormal(rows, cols, 42, 7), rows, cols), 1e-6) << rows << " x " << cols;
}

TEST(Orthonormal, SeedAndStreamDecide) {
    EXPECT_EQ(random_orthonormal(9, 5, 1, 2), random_orthonormal(9, 5, 1, 2));
    EXPECT_NE(random_orthonormal(9, 5, 1, 2), random_orthonormal(9, 5, 2, 2));
    EXPECT_NE(random_orthonormal(9, 5, 1, 2), random_orthonormal(9, 5, 1, 3));
}

}  // namespace
}  // namespace millrace::base
