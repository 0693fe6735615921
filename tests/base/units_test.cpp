#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::base {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

TEST(Units, DurationsParse) {
    EXPECT_EQ(parse_duration("5s").value(), 5s);
    EXPECT_EQ(parse_duration("250ms").value(), 250ms);
    EXPECT_EQ(parse_duration("2m").value(), 2min);
    EXPECT_EQ(parse_duration("2min").value(), 2min);
    EXPECT_EQ(parse_duration("1h").value(), 1h);
    EXPECT_EQ(parse_duration("1d").value(), 24h);
    EXPECT_EQ(parse_duration("7us").value(), 7us);
    EXPECT_EQ(parse_duration("3ns").value(), 3ns);
    EXPECT_EQ(parse_duration("0s").value(), 0s);
    EXPECT_EQ(parse_duration("1.5h").value(), 90min);
    EXPECT_EQ(parse_duration(" 1h 30m ").value(), 90min);
    EXPECT_EQ(parse_duration("1h1m1s").value(), 3661s);
    EXPECT_EQ(parse_duration("5 s").value(), 5s);
}

TEST(Units, BadDurationsSayWhatWouldBeRight) {
    for (const char* text :
         {"", " ", "5", "s", "-5s", "5x", "5 seconds", "nan s", "inf", "1e3s", "5s,", "5s 3", "0x5s", "999999999d", "5S"}) {
        const auto result = parse_duration(text);
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_NE(result.error().message.find("250ms"), std::string::npos) << result.error().message;
        EXPECT_EQ(result.error().exit_status, 2);
    }
    EXPECT_NE(parse_duration("5").error().message.find("unit is missing"), std::string::npos);
}

TEST(Units, BytesParse) {
    EXPECT_EQ(parse_bytes("512").value(), 512u);
    EXPECT_EQ(parse_bytes("512B").value(), 512u);
    EXPECT_EQ(parse_bytes("64MiB").value(), 64u << 20);
    EXPECT_EQ(parse_bytes("1GB").value(), 1'000'000'000u);
    EXPECT_EQ(parse_bytes("1.5 GiB").value(), 3ull << 29);
    EXPECT_EQ(parse_bytes("3kB").value(), 3000u);
    EXPECT_EQ(parse_bytes("0").value(), 0u);
    EXPECT_EQ(parse_bytes("18446744073709551615").value(), UINT64_MAX);
    EXPECT_EQ(parse_bytes("9007199254740993B").value(), 9007199254740993u) << "beyond 2^53 a double would lose the last bit";
}

TEST(Units, BadBytesAreRefused) {
    for (const char* text :
         {"", "MiB", "-1", "5XB", "5 M", "1.5", "1.5B", "64MiB4", "nan", "18446744073709551616", "99999999TiB", "1e3"})
        EXPECT_FALSE(parse_bytes(text).ok()) << text;
}

TEST(Units, PercentNeedsItsSign) {
    EXPECT_DOUBLE_EQ(parse_percent("5%").value(), 0.05);
    EXPECT_DOUBLE_EQ(parse_percent("12.5 %").value(), 0.125);
    for (const char* text : {"", "5", "%", "-5%", "5%%", "nan%", "five%"}) EXPECT_FALSE(parse_percent(text).ok()) << text;
}

TEST(Units, DurationsPrint) {
    EXPECT_EQ(print_duration(0s), "0.0s");
    EXPECT_EQ(print_duration(850ns), "850ns");
    EXPECT_EQ(print_duration(12345ns), "12.3us");
    EXPECT_EQ(print_duration(250ms), "250.0ms");
    EXPECT_EQ(print_duration(45s), "45.0s");
    EXPECT_EQ(print_duration(125s), "2m 5s");
    EXPECT_EQ(print_duration(3661s), "1h 1m 1s");
    EXPECT_EQ(print_duration(76h + 5min), "3d 4h 5m");
    EXPECT_EQ(print_duration(-45s), "-45.0s");
    EXPECT_EQ(print_duration(nanoseconds::min()).substr(0, 1), "-");
}

TEST(Units, PrintingNeverShowsAFullUnitOfTheSmallerKind) {
    EXPECT_EQ(print_duration(999'960us), "1.0s");
    EXPECT_EQ(print_duration(59'960ms), "1m 0s");
    EXPECT_EQ(print_duration(3599'700ms), "1h 0m 0s");
    EXPECT_EQ(print_bytes((1u << 20) - 1), "1.0 MiB");
}

TEST(Units, BytesAndPercentPrint) {
    EXPECT_EQ(print_bytes(0), "0 B");
    EXPECT_EQ(print_bytes(1023), "1023 B");
    EXPECT_EQ(print_bytes(1024), "1.0 KiB");
    EXPECT_EQ(print_bytes(12'897'485), "12.3 MiB");
    EXPECT_EQ(print_bytes(UINT64_MAX), "16.0 EiB");
    EXPECT_EQ(print_percent(0.0512), "5.1%");
}

TEST(Units, FiguresHaveNoExponentWhereNumbersAreLarge) {
    EXPECT_EQ(print_count(0), "0");
    EXPECT_EQ(print_count(999), "999");
    EXPECT_EQ(print_count(1'204), "1,204");
    EXPECT_EQ(print_count(18'446'744'073'709'551'615u), "18,446,744,073,709,551,615");
    EXPECT_EQ(print_figures(0.0421, 3), "0.0421");
    EXPECT_EQ(print_figures(155.04, 3), "155");
    EXPECT_EQ(print_figures(999.4, 3), "999");
    EXPECT_EQ(print_figures(999.7, 3), "1,000");
    EXPECT_EQ(print_figures(1298.7, 3), "1,300");
    EXPECT_EQ(print_figures(1785.4, 4), "1,785");
    EXPECT_EQ(print_figures(19619, 3), "19,600");
    EXPECT_EQ(print_figures(-1234567, 4), "-1,235,000");
    EXPECT_EQ(print_figures(1234.56, 6), "1,234.56");
    EXPECT_EQ(print_figures(0.0000123, 3), "1.23e-05");
    EXPECT_EQ(print_figures(0, 3), "0");
    EXPECT_EQ(print_figures(std::numeric_limits<double>::infinity(), 3), "inf");
    EXPECT_EQ(print_figures(std::nan(""), 3), "nan");
    EXPECT_EQ(print_figures(1e300, 3), "1e+300");
}

TEST(Units, ExactFormsParseBack) {
    EXPECT_EQ(exact_duration(90s), "90s");
    EXPECT_EQ(exact_duration(2h), "2h");
    EXPECT_EQ(exact_bytes(64u << 20), "64MiB");
    EXPECT_EQ(exact_bytes(1'000'000), "1MB");
    EXPECT_EQ(exact_bytes(1'000'000'000'000), "1TB") << "also a whole number of KiB";
    for (int64_t n : {0ll, 1ll, 999ll, 1'500'000ll, 90'000'000'000ll, 86'400'000'000'001ll})
        EXPECT_EQ(parse_duration(exact_duration(nanoseconds{n})).value().count(), n);
    for (uint64_t n : {0ull, 1ull, 1000ull, 1024ull, 1025ull, 3ull << 29, 9007199254740993ull})
        EXPECT_EQ(parse_bytes(exact_bytes(n)).value(), n);
}

}  // namespace
}  // namespace millrace::base
