#include "base/log.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "captured_log.h"

namespace {
/// Knows how often it was formatted and how often it was made.
struct Counted {
    int* formatted;
};
}  // namespace

template <>
struct fmt::formatter<Counted> {
    constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
    template <class Context>
    auto format(const Counted& counted, Context& context) const {
        ++*counted.formatted;
        return fmt::format_to(context.out(), "counted");
    }
};

namespace millrace::base {
namespace {

class Log : public testing::Test {
protected:
    void SetUp() override { set_log_level(LogLevel::training); }
    void TearDown() override { set_log_level(LogLevel::training); }
    test::CapturedLog log_;
};

TEST_F(Log, MessageBelowTheLevelIsNeitherFormattedNorEvaluated) {
    int formatted = 0, evaluated = 0;
    const auto make = [&] {
        ++evaluated;
        return Counted{&formatted};
    };
    MILLRACE_LOG(debug, "{}", make());
    EXPECT_EQ(evaluated, 0);
    EXPECT_EQ(formatted, 0);
    EXPECT_EQ(log_.text(), "");

    set_log_level(LogLevel::debug);
    MILLRACE_LOG(debug, "{}", make());
    EXPECT_EQ(evaluated, 1);
    EXPECT_EQ(formatted, 1);
    EXPECT_EQ(log_.text(), "debug: counted\n");
}

TEST_F(Log, LevelIncludesTheGraverOnes) {
    set_log_level(LogLevel::info);
    EXPECT_TRUE(log_enabled(LogLevel::info));
    EXPECT_FALSE(log_enabled(LogLevel::training));
    MILLRACE_LOG(error, "a");
    MILLRACE_LOG(warn, "b {}", 1);
    MILLRACE_LOG(info, "c {:.2f}", 0.5);
    MILLRACE_LOG(training, "d");
    MILLRACE_LOG(performance, "e");
    EXPECT_EQ(log_.text(), "error: a\nwarning: b 1\nc 0.50\n");
}

TEST_F(Log, LevelNamesAreParsed) {
    int number = 0;
    for (const char* name : {"error", "warn", "info", "training", "performance", "profiling", "debug"})
        EXPECT_EQ(static_cast<int>(parse_log_level(name).value()), number++) << name;
    const auto wrong = parse_log_level("trainnig");
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("did you mean training?"), std::string::npos);
    EXPECT_FALSE(parse_log_level("").ok());
    EXPECT_FALSE(parse_log_level("INFO").ok());
}

TEST_F(Log, StderrGetsPlainLinesWhenItIsNoTerminal) {
    MILLRACE_LOG(info, "plain");
    MILLRACE_LOG(warn, "careful");
    EXPECT_EQ(log_.text(), "plain\nwarning: careful\n");
}

TEST_F(Log, ProgressLineIsClearedAndRedrawnAroundALine) {
    {
        LiveLines lines(true);
        lines.draw("first\nsecond");
        MILLRACE_LOG(info, "text");
    }
    const std::string cleared = "\r\x1b[K\x1b[1A\x1b[K";
    EXPECT_EQ(log_.text(), "first\nsecond" + cleared + "text\nfirst\nsecond" + cleared);
    MILLRACE_LOG(info, "alone");
    EXPECT_TRUE(log_.text().ends_with("alone\n"));
}

TEST_F(Log, ColourOnlyOnATerminalWithoutNoColor) {
    EXPECT_TRUE(colour_wanted(true, nullptr));
    EXPECT_TRUE(colour_wanted(true, ""));
    EXPECT_FALSE(colour_wanted(true, "1"));
    EXPECT_FALSE(colour_wanted(false, nullptr));
    EXPECT_EQ(log_line(LogLevel::error, "x", true), "\033[31;1merror:\033[0m x\n");
    EXPECT_EQ(log_line(LogLevel::error, "x", false), "error: x\n");
    EXPECT_EQ(log_line(LogLevel::info, "x", true), "x\n");
}

TEST_F(Log, ControlCharactersOfAMessageAreMadeVisible) {
    EXPECT_EQ(log_line(LogLevel::info, "a\033[2Jb\rc\td\ne\x7f", false), "a\\x1b[2Jb\\x0dc\td\ne\\x7f\n");
    EXPECT_EQ(log_line(LogLevel::info, "größe", false), "größe\n");
    EXPECT_EQ(log_line(LogLevel::info,
                       "a\xc2\x9b"
                       "2Jb\xc2\xa0\xc2",
                       false),
              "a\\x9b2Jb\xc2\xa0\xc2\n");
}

TEST_F(Log, LinesOfThreadsAreWrittenWholeAndOnce) {
    constexpr int kThreads = 4, kLines = 200;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([t] {
                for (int i = 0; i < kLines; ++i) MILLRACE_LOG(info, "thread {} line {} end", t, i);
            });
    }
    const std::vector<std::string> lines = log_.lines();
    EXPECT_EQ(lines.size(), static_cast<size_t>(kThreads * kLines));
    const std::set<std::string> texts(lines.begin(), lines.end());
    for (int t = 0; t < kThreads; ++t)
        for (int i = 0; i < kLines; ++i) EXPECT_TRUE(texts.contains(fmt::format("thread {} line {} end", t, i)));
}

}  // namespace
}  // namespace millrace::base
