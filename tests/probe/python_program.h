#pragma once
// What tests that drive the stand-ins by a real interpreter have in common.

#include <gtest/gtest.h>

#include "probed_program.h"

namespace millrace::probe {

class PythonProgram : public ::testing::Test {
protected:
    void SetUp() override {
        if (interpreter().empty()) GTEST_SKIP() << "no Python interpreter";
    }
};

}  // namespace millrace::probe
