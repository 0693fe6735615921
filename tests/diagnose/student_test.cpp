#include "diagnose/compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace millrace::diagnose {
namespace {

TEST(Student, AgreesWithClosedFormsAndTables) {
    for (const double t : {0.0, 0.1, 1.0, 3.0, 12.706, 500.0}) {
        EXPECT_NEAR(student_p(t, 1), 1 - 2 / std::numbers::pi * std::atan(t), 1e-12) << t;
        EXPECT_NEAR(student_p(t, 2), 1 - t / std::sqrt(2 + t * t), 1e-12) << t;
        EXPECT_EQ(student_p(-t, 7.5), student_p(t, 7.5));
    }
    EXPECT_NEAR(student_p(5.9588, 6), 0.001, 1e-6);
    EXPECT_NEAR(student_p(3.6460, 30), 0.001, 1e-6);
    EXPECT_NEAR(student_p(2, 1e7), std::erfc(2 / std::sqrt(2.0)), 1e-6);
}

TEST(Student, WhatIsNoNumberShowsNothing) {
    EXPECT_EQ(student_p(std::nan(""), 5), 1);
    EXPECT_EQ(student_p(std::numeric_limits<double>::infinity(), 5), 0);
}

}  // namespace
}  // namespace millrace::diagnose
