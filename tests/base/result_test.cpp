#include "base/result.h"

#include <gtest/gtest.h>

namespace millrace::base {
namespace {

Result<int> half(int n) {
    if (n % 2 != 0) return Error{"odd number; an even one divides", "input:3"};
    return n / 2;
}

Result<int> quarter(int n) {
    MILLRACE_LET(first, half(n));
    MILLRACE_LET(second, half(first));
    return second;
}

TEST(Result, ValuePassesThroughLet) { EXPECT_EQ(quarter(12).value(), 3); }

TEST(Result, ErrorStopsAtTheFirstFailure) {
    auto result = quarter(6);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().place, "input:3");
}

TEST(Result, CauseIsPartOfTheText) {
    Error error = Error{"cannot load run", "runs/a"}.because(Error{"file is short", "model.safetensors"});
    EXPECT_EQ(error.text(), "runs/a: cannot load run\n  because model.safetensors: file is short");
}

}  // namespace
}  // namespace millrace::base
