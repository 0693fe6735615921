#include "report/terminal.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::report {
namespace {

TEST(ProgressLine, ShowsShareAndWhatIsRead) {
    EXPECT_EQ(progress_text("reading a", 0, 80, false),
              ".............................."
              " "
              "  0 % reading a");
    EXPECT_EQ(progress_text("reading a", 0.5, 80, false),
              "###############..............."
              " "
              " 50 % reading a");
    EXPECT_EQ(progress_text("reading a", 1, 80, false),
              "##############################"
              " "
              "100 % reading a");
    EXPECT_EQ(progress_text("reading a", 7, 80, false), progress_text("reading a", 1, 80, false));
    EXPECT_EQ(progress_text("reading a", std::nan(""), 80, false), progress_text("reading a", 0, 80, false));
}

TEST(ProgressLine, NeverWiderThanTheTerminalAndHarmless) {
    EXPECT_EQ(progress_text("a very long name of a trace", 0.5, 40, false).size(), 40u);
    EXPECT_EQ(progress_text("\033[2J", 0.5, 80, false).find('\033'), std::string::npos);
}

}  // namespace
}  // namespace millrace::report
